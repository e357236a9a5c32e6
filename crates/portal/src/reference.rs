//! The reference: every operation of the OpenAPI document as a page, with a form to call it. The reader's key never comes here: the form is the
//! browser's own, and calls the API itself.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value};

use crate::Portal;
use crate::docs::highlighted;
use crate::page::{Visitor, show};
use crate::view::{ReferencePage, Tab};

const SENTENCE: &str = "Every operation, field, header, status and example of Ipseity's API, version 1.1.0, with a form to call each with your own key.";

/// An operation, ready to be shown.
pub(crate) struct Described {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) summary: String,
    pub(crate) description: String,
    pub(crate) needs_key: bool,
    /// The values that `scope` may have; none where there is no such parameter.
    pub(crate) scopes: Vec<String>,
    pub(crate) responses: Vec<Answered>,
}

/// What may be answered.
pub(crate) struct Answered {
    pub(crate) status: String,
    pub(crate) description: String,
    /// Schema of the body, by its name.
    pub(crate) schema: String,
    pub(crate) headers: Vec<String>,
    /// Name and highlighted JSON of each example.
    pub(crate) examples: Vec<(String, String)>,
}

/// A field, header or other named thing with a meaning.
pub(crate) struct Explained {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) meaning: String,
    /// The lowest scope that shows it; empty where there is none.
    pub(crate) scope: String,
    pub(crate) example: String,
}

/// A body, field by field.
pub(crate) struct Body {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) fields: Vec<Explained>,
}

pub(crate) async fn reference(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    let document = portal.surroundings.openapi();
    let frame = visitor.public_frame(&portal, "API reference", Tab::Reference, SENTENCE, "/reference");
    show(&ReferencePage {
        frame,
        base_url: &portal.settings.base_url,
        operations: operations(document),
        bodies: bodies(document),
        headers: explained(&document["components"]["headers"]),
    })
}

/// Every GET; HEAD and OPTIONS are told of once, on the page itself.
fn operations(document: &Value) -> Vec<Described> {
    let described = |(path, item): (&String, &Value)| {
        let get = &item["get"];
        let parameters = get["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let scopes = parameters.iter().flat_map(|parameter| list(&parameter["schema"]["enum"])).map(text).collect();
        Described {
            id: text(&get["operationId"]),
            path: path.clone(),
            summary: text(&get["summary"]),
            description: text(&get["description"]),
            needs_key: !list(&get["security"]).is_empty(),
            scopes,
            responses: entries(&get["responses"]).map(answered).collect(),
        }
    };
    entries(&document["paths"]).map(described).collect()
}

fn answered((status, response): (&String, &Value)) -> Answered {
    let content = entries(&response["content"]).next().map(|(_, content)| content).unwrap_or(&Value::Null);
    let example = |(name, example): (&String, &Value)| (name.clone(), shown(&example["value"]));
    Answered {
        status: status.clone(),
        description: text(&response["description"]),
        schema: content["schema"]["$ref"]
            .as_str()
            .and_then(|name| name.rsplit('/').next())
            .unwrap_or_default()
            .to_owned(),
        headers: entries(&response["headers"]).map(|(name, _)| name.clone()).collect(),
        examples: entries(&content["examples"]).map(example).collect(),
    }
}

fn bodies(document: &Value) -> Vec<Body> {
    let body = |(name, schema): (&String, &Value)| Body {
        name: name.clone(),
        description: text(&schema["description"]),
        fields: explained(&schema["properties"]),
    };
    entries(&document["components"]["schemas"]).map(body).collect()
}

fn explained(all: &Value) -> Vec<Explained> {
    let one = |(name, about): (&String, &Value)| {
        let schema = if about["schema"].is_object() { &about["schema"] } else { about };
        let example = if about["examples"].is_array() { &about["examples"][0] } else { &about["example"] };
        Explained {
            name: name.clone(),
            kind: kind(&schema["type"]),
            meaning: text(&about["description"]),
            scope: text(&about["x-scope"]),
            example: if example.is_null() { String::new() } else { example.to_string() },
        }
    };
    entries(all).map(one).collect()
}

fn kind(of: &Value) -> String {
    if of.is_array() { list(of).iter().map(text).collect::<Vec<_>>().join(" or ") } else { text(of) }
}

fn shown(example: &Value) -> String {
    highlighted(&serde_json::to_string_pretty(example).unwrap_or_default(), "json")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_read_into_operations_and_bodies() {
        let document = json!({
            "paths": { "/a": { "get": {
                "operationId": "lookup", "summary": "S", "description": "D", "security": [{ "bearer": [] }],
                "parameters": [{ "name": "scope", "schema": { "enum": ["ip", "geo"] } }],
                "responses": { "200": {
                    "description": "Answered.", "headers": { "X-A": {} },
                    "content": { "application/json": { "schema": { "$ref": "#/x/Body" }, "examples": { "one": { "value": { "b": 1 } } } } },
                } },
            } } },
            "components": { "schemas": { "Body": { "description": "B", "properties": { "b": { "type": ["integer", "null"], "x-scope": "ip", "examples": [1] } } } } },
        });
        let [operation] = &operations(&document)[..] else { panic!("one operation") };
        assert!(operation.needs_key && operation.scopes == ["ip", "geo"]);
        let response = &operation.responses[0];
        assert_eq!((response.schema.as_str(), response.headers.as_slice()), ("Body", &["X-A".to_owned()][..]));
        assert!(response.examples[0].1.contains("<span class=\"code-key\">&quot;b&quot;</span>"));
        let field = &bodies(&document)[0].fields[0];
        assert_eq!((field.kind.as_str(), field.scope.as_str(), field.example.as_str()), ("integer or null", "ip", "1"));
    }
}
