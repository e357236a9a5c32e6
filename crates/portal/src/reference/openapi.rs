//! Reads the parts of the OpenAPI document that the reference shows.

use serde_json::{Map, Value};

use crate::docs::highlight::highlight_code;
use crate::reference::code::{curl_command, lookup_code};
use crate::reference::manage::MANAGE_PREFIX;
use crate::view::code_tabs::CodeTabs;

/// The schema of errors. The documentation has their examples.
const ERROR_SCHEMA: &str = "ErrorResponse";
/// The schema of lookups. Others share fields with it.
const LOOKUP_SCHEMA: &str = "IpResponse";
/// The operation that looks up the caller.
const LOOKUP_ID: &str = "lookup";

/// An operation.
pub(crate) struct OperationDoc {
    pub(crate) id: String,
    /// Such as `GET`.
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) needs_key: bool,
    pub(crate) parameters: Vec<ParameterDoc>,
    /// Values of the parameter `scope`; empty if there is no such parameter.
    pub(crate) scopes: Vec<String>,
    /// Name of the schema of the request's body; empty if there is none.
    pub(crate) body_schema: String,
    /// The programs of a lookup.
    pub(crate) code: Option<CodeTabs>,
    /// The highlighted command that sends the request.
    pub(crate) curl_html: String,
    pub(crate) responses: Vec<ResponseDoc>,
}

/// What a request can contain.
pub(crate) struct ParameterDoc {
    pub(crate) name: String,
    /// `header`, `query` or `body`.
    pub(crate) place: String,
    pub(crate) meaning: String,
    /// The allowed values; empty if there is no list.
    pub(crate) values: Vec<String>,
}

/// A response of an operation.
pub(crate) struct ResponseDoc {
    pub(crate) status: String,
    pub(crate) description: String,
    /// Name of the body's schema.
    pub(crate) schema: String,
    /// Headers that not every response has.
    pub(crate) headers: Vec<String>,
    /// Name and highlighted JSON of each example of a success.
    pub(crate) examples: Vec<(String, String)>,
    /// Name and documentation of each error.
    pub(crate) errors: Vec<(String, String)>,
}

/// A field or header.
pub(crate) struct FieldDoc {
    pub(crate) name: String,
    pub(crate) json_type: String,
    pub(crate) meaning: String,
    /// The lowest scope that includes it; empty if there is none.
    pub(crate) scope: String,
    pub(crate) example: String,
}

/// A schema and its fields.
pub(crate) struct SchemaDoc {
    pub(crate) name: String,
    pub(crate) description: String,
    /// The fields that the page describes here.
    pub(crate) fields: Vec<FieldDoc>,
    /// The names of fields that are the same in the schema of lookups.
    pub(crate) lookup_fields: Vec<String>,
}

/// Every operation, except those of the management API. The page describes HEAD and OPTIONS once, for all.
pub(super) fn operation_docs(document: &Value, base_url: &str) -> Vec<OperationDoc> {
    let operation_doc = |(path, item): (&String, &Value)| {
        let (method, operation) =
            if item["post"].is_object() { ("POST", &item["post"]) } else { ("GET", &item["get"]) };
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let scopes = parameters
            .iter()
            .filter(|parameter| parameter["name"] == "scope")
            .flat_map(|parameter| array_or_empty(&parameter["schema"]["enum"]))
            .map(string_or_empty)
            .collect();
        let id = string_or_empty(&operation["operationId"]);
        let needs_key = !array_or_empty(&operation["security"]).is_empty();
        let body = content_of(&operation["requestBody"])["example"].clone();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        OperationDoc {
            code: (id == LOOKUP_ID).then(|| lookup_code(base_url)),
            curl_html: curl_command(&format!("{base_url}{path}"), needs_key, &body),
            parameters: parameter_docs(document, operation),
            id,
            method,
            path: path.clone(),
            summary: string_or_empty(&operation["summary"]),
            description: string_or_empty(&operation["description"]),
            needs_key,
            scopes,
            body_schema: schema_name(&operation["requestBody"]).to_owned(),
            responses: object_entries(&operation["responses"])
                .map(|response| response_doc(response, base_url))
                .collect(),
        }
    };
    let paths = object_entries(&document["paths"]).filter(|(path, _)| !path.starts_with(MANAGE_PREFIX));
    let mut operations: Vec<OperationDoc> = paths.map(operation_doc).collect();
    hide_common_headers(&mut operations);
    operations
}

/// Removes the errors that every operation has, and returns them.
pub(super) fn take_common_errors(operations: &mut [OperationDoc]) -> Vec<ResponseDoc> {
    let Some((first, others)) = operations.split_first_mut() else { return Vec::new() };
    let has = |operation: &OperationDoc, error: &ResponseDoc| {
        operation.responses.iter().any(|other| other.status == error.status && other.errors == error.errors)
    };
    let is_common =
        |error: &ResponseDoc| !error.errors.is_empty() && others.iter().all(|operation| has(operation, error));
    let common: Vec<_> = first.responses.extract_if(.., |error| is_common(error)).collect();
    for operation in others {
        operation.responses.retain(|response| !common.iter().any(|error| error.errors == response.errors));
    }
    common
}

/// The ways to send the key, the parameters, and the fields of the body.
fn parameter_docs(document: &Value, operation: &Value) -> Vec<ParameterDoc> {
    let key = |scheme: &Value| {
        let is_header = scheme["type"] == "http";
        ParameterDoc {
            name: if is_header { "Authorization".to_owned() } else { string_or_empty(&scheme["name"]) },
            place: if is_header { "header".to_owned() } else { string_or_empty(&scheme["in"]) },
            meaning: string_or_empty(&scheme["description"]),
            values: Vec::new(),
        }
    };
    let parameter = |parameter: &Value| ParameterDoc {
        name: string_or_empty(&parameter["name"]),
        place: string_or_empty(&parameter["in"]),
        meaning: string_or_empty(&parameter["description"]),
        values: array_or_empty(&parameter["schema"]["enum"]).iter().map(string_or_empty).collect(),
    };
    let components = &document["components"];
    let schemes = array_or_empty(&operation["security"]).iter().flat_map(object_entries);
    let mut parameters: Vec<_> = schemes.map(|(name, _)| key(&components["securitySchemes"][name])).collect();
    parameters.extend(array_or_empty(&operation["parameters"]).iter().map(parameter));
    let body = &components["schemas"][schema_name(&operation["requestBody"])];
    parameters.extend(field_docs(&body["properties"]).into_iter().map(|FieldDoc { name, meaning, .. }| ParameterDoc {
        name,
        place: "body".to_owned(),
        meaning,
        values: Vec::new(),
    }));
    parameters
}

/// Removes the headers that every response has.
fn hide_common_headers(operations: &mut [OperationDoc]) {
    let responses = || operations.iter().flat_map(|operation| &operation.responses);
    let is_common = |name: &String| responses().all(|response| response.headers.contains(name));
    let common: Vec<String> = responses()
        .next()
        .map(|first| first.headers.iter().filter(|name| is_common(name)).cloned().collect())
        .unwrap_or_default();
    for response in operations.iter_mut().flat_map(|operation| &mut operation.responses) {
        response.headers.retain(|name| !common.contains(name));
    }
}

fn response_doc((status, response): (&String, &Value), base_url: &str) -> ResponseDoc {
    let (schema, content) = (schema_name(response), content_of(response));
    let is_error = schema == ERROR_SCHEMA;
    let examples = || object_entries(&content["examples"]).map(|(name, example)| (name.clone(), &example["value"]));
    ResponseDoc {
        status: status.clone(),
        description: string_or_empty(&response["description"]),
        schema: schema.to_owned(),
        headers: object_entries(&response["headers"]).map(|(name, _)| name.clone()).collect(),
        examples: examples().filter(|_| !is_error).map(|(name, value)| (name, example_html(value))).collect(),
        errors: examples()
            .filter(|_| is_error)
            .map(|(name, value)| (name, path_of(&value["docs"], base_url)))
            .collect(),
    }
}

/// A URL of this service, without its host.
fn path_of(url: &Value, base_url: &str) -> String {
    let url = url.as_str().unwrap_or_default();
    url.strip_prefix(base_url).unwrap_or(url).to_owned()
}

/// The body of a request or response.
fn content_of(message: &Value) -> &Value {
    object_entries(&message["content"]).next().map_or(&Value::Null, |(_, content)| content)
}

fn schema_name(message: &Value) -> &str {
    content_of(message)["schema"]["$ref"].as_str().and_then(|name| name.rsplit('/').next()).unwrap_or_default()
}

/// The schemas that an operation links.
pub(super) fn schema_docs(document: &Value, operations: &[OperationDoc]) -> Vec<SchemaDoc> {
    let is_linked = |name: &str| {
        let links = |operation: &OperationDoc| operation.responses.iter().any(|response| response.schema == name);
        operations.iter().any(|operation| operation.body_schema == name || links(operation))
    };
    let lookup = field_docs(&document["components"]["schemas"][LOOKUP_SCHEMA]["properties"]);
    let schema_doc = |(name, schema): (&String, &Value)| {
        let is_same = |field: &FieldDoc| {
            let is_this = |other: &FieldDoc| other.name == field.name && other.meaning == field.meaning;
            name != LOOKUP_SCHEMA && lookup.iter().any(is_this)
        };
        let (same, fields): (Vec<_>, _) = field_docs(&schema["properties"]).into_iter().partition(is_same);
        SchemaDoc {
            name: name.clone(),
            description: string_or_empty(&schema["description"]),
            fields,
            lookup_fields: same.into_iter().map(|field| field.name).collect(),
        }
    };
    let schemas = object_entries(&document["components"]["schemas"]).filter(|(name, _)| is_linked(name));
    schemas.map(schema_doc).collect()
}

pub(super) fn field_docs(properties: &Value) -> Vec<FieldDoc> {
    let field_doc = |(name, property): (&String, &Value)| {
        let schema = if property["schema"].is_object() { &property["schema"] } else { property };
        let example = if property["examples"].is_array() { &property["examples"][0] } else { &property["example"] };
        FieldDoc {
            name: name.clone(),
            json_type: type_name(&schema["type"]),
            meaning: string_or_empty(&property["description"]),
            scope: string_or_empty(&property["x-scope"]),
            example: if example.is_null() { String::new() } else { example.to_string() },
        }
    };
    object_entries(properties).map(field_doc).collect()
}

fn type_name(type_value: &Value) -> String {
    if type_value.is_array() {
        array_or_empty(type_value).iter().map(string_or_empty).collect::<Vec<_>>().join(" or ")
    } else {
        string_or_empty(type_value)
    }
}

fn example_html(example: &Value) -> String {
    highlight_code(&serde_json::to_string_pretty(example).unwrap_or_default(), "json")
}

pub(super) fn string_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn array_or_empty(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn object_entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn openapi_document_becomes_operations_and_schemas() {
        let document = json!({
            "paths": { "/a": { "get": {
                "operationId": "lookup", "summary": "S", "description": "D", "security": [{ "bearer": [] }],
                "parameters": [
                    { "name": "scope", "schema": { "enum": ["ip", "geo"] } },
                    { "name": "other", "schema": { "enum": ["x"] } },
                ],
                "responses": { "200": {
                    "description": "Success.", "headers": { "X-A": {} },
                    "content": { "application/json": { "schema": { "$ref": "#/x/Body" }, "examples": { "one": { "value": { "b": 1 } } } } },
                }, "401": {
                    "description": "Missing.", "headers": { "X-A": {} },
                    "content": { "application/json": {
                        "schema": { "$ref": "#/x/ErrorResponse" }, "examples": { "missing": { "value": { "docs": "https://ip.example/d#m" } } },
                    } },
                } },
            } }, "/b": { "post": {
                "operationId": "create", "security": [{ "bearer": [] }, { "query": [] }],
                "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/x/Options" }, "example": { "o": 1 } } } },
            } } },
            "components": { "securitySchemes": {
                "bearer": { "type": "http", "description": "K" }, "query": { "type": "apiKey", "in": "query", "name": "key" },
            }, "schemas": { "Body": { "description": "B", "properties": { "b": { "type": ["integer", "null"], "x-scope": "ip", "examples": [1] } } }, "Options": { "properties": { "o": {} } } } },
        });
        let [operation, create] = &operation_docs(&document, "https://ip.example")[..] else {
            panic!("expected two operations")
        };
        let names = |operation: &OperationDoc| {
            let name = |parameter: &ParameterDoc| format!("{} in {}", parameter.name, parameter.place);
            operation.parameters.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(create), ["Authorization in header", "key in query", "o in body"]);
        assert_eq!(names(operation), ["Authorization in header", "scope in ", "other in "]);
        assert_eq!(operation.parameters[1].values, ["ip", "geo"]);
        assert!(operation.code.is_some() && create.code.is_none());
        assert!(create.curl_html.ends_with("https://ip.example/b"), "{}", create.curl_html);
        assert_eq!((create.method, create.body_schema.as_str()), ("POST", "Options"));
        assert!(
            operation.method == "GET"
                && operation.body_schema.is_empty()
                && operation.needs_key
                && operation.scopes == ["ip", "geo"]
        );
        let response = &operation.responses[0];
        assert_eq!(response.schema, "Body");
        assert!(response.headers.is_empty(), "every response has them");
        assert!(response.examples[0].1.contains("<span class=\"code-key\">\"b\"</span>"));
        let error = &operation.responses[1];
        assert!(error.examples.is_empty() && error.errors == [("missing".to_owned(), "/d#m".to_owned())]);
        let operations = || operation_docs(&document, "https://ip.example");
        let mut twice: Vec<_> =
            [operations(), operations()].into_iter().flat_map(|all| all.into_iter().take(1)).collect();
        assert_eq!(take_common_errors(&mut twice).iter().map(|error| &*error.status).collect::<Vec<_>>(), ["401"]);
        assert!(twice.iter().all(|operation| operation.responses.len() == 1), "the success stays");
        assert!(take_common_errors(&mut operations()).is_empty(), "one operation does not have it");
        let field = &schema_docs(&document, &operations())[0].fields[0];
        assert_eq!(
            (field.json_type.as_str(), field.scope.as_str(), field.example.as_str()),
            ("integer or null", "ip", "1")
        );
    }
}
