//! Reads the parts of the OpenAPI document that the reference shows.

use serde_json::{Map, Value};

use crate::docs::highlight::highlight_code;

/// The schema of errors. The documentation has their examples.
const ERROR_SCHEMA: &str = "ErrorResponse";

/// An operation.
pub(crate) struct OperationDoc {
    pub(crate) id: String,
    /// Such as `GET`.
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) needs_key: bool,
    /// Values of the parameter `scope`; empty if there is no such parameter.
    pub(crate) scopes: Vec<String>,
    /// Name of the schema of the request's body; empty if there is none.
    pub(crate) body_schema: String,
    pub(crate) responses: Vec<ResponseDoc>,
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
    pub(crate) fields: Vec<FieldDoc>,
}

/// Every operation. The page describes HEAD and OPTIONS once, for all.
pub(super) fn operation_docs(document: &Value) -> Vec<OperationDoc> {
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
        OperationDoc {
            id: string_or_empty(&operation["operationId"]),
            method,
            path: path.clone(),
            summary: string_or_empty(&operation["summary"]),
            description: string_or_empty(&operation["description"]),
            needs_key: !array_or_empty(&operation["security"]).is_empty(),
            scopes,
            body_schema: schema_name(&operation["requestBody"]).to_owned(),
            responses: object_entries(&operation["responses"]).map(response_doc).collect(),
        }
    };
    let mut operations: Vec<OperationDoc> = object_entries(&document["paths"]).map(operation_doc).collect();
    hide_common_headers(&mut operations);
    operations
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

fn response_doc((status, response): (&String, &Value)) -> ResponseDoc {
    let (schema, content) = (schema_name(response), content_of(response));
    let is_error = schema == ERROR_SCHEMA;
    let examples = || object_entries(&content["examples"]).map(|(name, example)| (name.clone(), &example["value"]));
    ResponseDoc {
        status: status.clone(),
        description: string_or_empty(&response["description"]),
        schema: schema.to_owned(),
        headers: object_entries(&response["headers"]).map(|(name, _)| name.clone()).collect(),
        examples: examples().filter(|_| !is_error).map(|(name, value)| (name, example_html(value))).collect(),
        errors: examples().filter(|_| is_error).map(|(name, value)| (name, string_or_empty(&value["docs"]))).collect(),
    }
}

/// The body of a request or response.
fn content_of(message: &Value) -> &Value {
    object_entries(&message["content"]).next().map_or(&Value::Null, |(_, content)| content)
}

fn schema_name(message: &Value) -> &str {
    content_of(message)["schema"]["$ref"].as_str().and_then(|name| name.rsplit('/').next()).unwrap_or_default()
}

pub(super) fn schema_docs(document: &Value) -> Vec<SchemaDoc> {
    let schema_doc = |(name, schema): (&String, &Value)| SchemaDoc {
        name: name.clone(),
        description: string_or_empty(&schema["description"]),
        fields: field_docs(&schema["properties"]),
    };
    object_entries(&document["components"]["schemas"]).map(schema_doc).collect()
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

fn string_or_empty(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn array_or_empty(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn object_entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
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
                        "schema": { "$ref": "#/x/ErrorResponse" }, "examples": { "missing": { "value": { "docs": "/d#m" } } },
                    } },
                } },
            } }, "/b": { "post": {
                "operationId": "create",
                "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/x/Options" } } } },
            } } },
            "components": { "schemas": { "Body": { "description": "B", "properties": { "b": { "type": ["integer", "null"], "x-scope": "ip", "examples": [1] } } } } },
        });
        let [operation, create] = &operation_docs(&document)[..] else { panic!("expected two operations") };
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
        assert!(response.examples[0].1.contains("<span class=\"code-key\">&quot;b&quot;</span>"));
        let error = &operation.responses[1];
        assert!(error.examples.is_empty() && error.errors == [("missing".to_owned(), "/d#m".to_owned())]);
        let field = &schema_docs(&document)[0].fields[0];
        assert_eq!(
            (field.json_type.as_str(), field.scope.as_str(), field.example.as_str()),
            ("integer or null", "ip", "1")
        );
    }
}
