//! Reads the parts of the OpenAPI document that the reference shows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Map, Value};

use crate::docs::highlight::highlight_code;

/// The schema of errors. Their examples are short, and many.
const ERROR_SCHEMA: &str = "ErrorResponse";

/// A GET operation.
pub(crate) struct OperationDoc {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) needs_key: bool,
    /// Values of the parameter `scope`; empty if there is no such parameter.
    pub(crate) scopes: Vec<String>,
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
    /// Name and highlighted JSON of each example.
    pub(crate) examples: Vec<(String, String)>,
    /// Name and anchor of each example that an earlier operation has too.
    pub(crate) earlier_examples: Vec<(String, String)>,
}

impl ResponseDoc {
    pub(crate) fn is_error(&self) -> bool {
        self.schema == ERROR_SCHEMA
    }
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

/// Every GET operation. The page describes HEAD and OPTIONS once, for all.
pub(super) fn operation_docs(document: &Value) -> Vec<OperationDoc> {
    let operation_doc = |(path, item): (&String, &Value)| {
        let get = &item["get"];
        let parameters = get["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let scopes = parameters
            .iter()
            .filter(|parameter| parameter["name"] == "scope")
            .flat_map(|parameter| array_or_empty(&parameter["schema"]["enum"]))
            .map(string_or_empty)
            .collect();
        OperationDoc {
            id: string_or_empty(&get["operationId"]),
            path: path.clone(),
            summary: string_or_empty(&get["summary"]),
            description: string_or_empty(&get["description"]),
            needs_key: !array_or_empty(&get["security"]).is_empty(),
            scopes,
            responses: object_entries(&get["responses"]).map(response_doc).collect(),
        }
    };
    let mut operations: Vec<OperationDoc> = object_entries(&document["paths"]).map(operation_doc).collect();
    link_repeated_examples(&mut operations);
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

/// Replaces examples that an earlier operation has by links to them. Nearly all operations have the same errors.
fn link_repeated_examples(operations: &mut [OperationDoc]) {
    let mut anchors: HashMap<(String, String), String> = HashMap::new();
    for OperationDoc { id, responses, .. } in operations {
        for response in responses.iter_mut().filter(|response| response.is_error()) {
            for (name, example) in std::mem::take(&mut response.examples) {
                let anchor = format!("{id}-{}-{name}", response.status);
                match anchors.entry((name.clone(), example.clone())) {
                    Entry::Occupied(earlier) => response.earlier_examples.push((name, earlier.get().clone())),
                    Entry::Vacant(first) => {
                        first.insert(anchor);
                        response.examples.push((name, example));
                    }
                }
            }
        }
    }
}

fn response_doc((status, response): (&String, &Value)) -> ResponseDoc {
    let content = object_entries(&response["content"]).next().map(|(_, content)| content).unwrap_or(&Value::Null);
    let schema = content["schema"]["$ref"].as_str().and_then(|name| name.rsplit('/').next()).unwrap_or_default();
    let language = if schema == ERROR_SCHEMA { "text" } else { "json" };
    let example = |(name, example): (&String, &Value)| (name.clone(), example_html(&example["value"], language));
    ResponseDoc {
        status: status.clone(),
        description: string_or_empty(&response["description"]),
        schema: schema.to_owned(),
        headers: object_entries(&response["headers"]).map(|(name, _)| name.clone()).collect(),
        examples: object_entries(&content["examples"]).map(example).collect(),
        earlier_examples: Vec::new(),
    }
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

fn example_html(example: &Value, language: &str) -> String {
    highlight_code(&serde_json::to_string_pretty(example).unwrap_or_default(), language)
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
                } },
            } } },
            "components": { "schemas": { "Body": { "description": "B", "properties": { "b": { "type": ["integer", "null"], "x-scope": "ip", "examples": [1] } } } } },
        });
        let [operation] = &operation_docs(&document)[..] else { panic!("expected one operation") };
        assert!(operation.needs_key && operation.scopes == ["ip", "geo"]);
        let response = &operation.responses[0];
        assert_eq!(response.schema, "Body");
        assert!(response.headers.is_empty(), "every response has them");
        assert!(response.examples[0].1.contains("<span class=\"code-key\">&quot;b&quot;</span>"));
        let field = &schema_docs(&document)[0].fields[0];
        assert_eq!(
            (field.json_type.as_str(), field.scope.as_str(), field.example.as_str()),
            ("integer or null", "ip", "1")
        );
    }
}
