//! Adds operations of another crate to the document.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::openapi::document::{header_references, preflight_object, refusal_response_object};
use crate::operation::Operation;
use crate::public_urls::PublicUrls;
use crate::response::json_response;

/// What any request can get, like those that return the version of the service.
const COMMON: Operation = Operation::Meta;
const COMMON_STATUSES: [StatusCode; 4] = [
    StatusCode::FORBIDDEN,
    StatusCode::URI_TOO_LONG,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::INTERNAL_SERVER_ERROR,
];
/// The member of a response that describes its body.
const CONTENT: &str = "content";

/// Adds the `paths`, `schemas`, `tag` and `security_scheme` of `additions` to a document. Each path gets HEAD and OPTIONS, and each
/// operation the headers and errors that all have.
#[must_use]
pub fn with_operations(mut document: Value, additions: &Value, public_urls: &PublicUrls) -> Value {
    let objects = |value: &Value| value.as_object().cloned().unwrap_or_default();
    for (path, mut item) in objects(&additions["paths"]) {
        for (_, operation) in item.as_object_mut().into_iter().flatten() {
            complete(operation, public_urls);
        }
        let first = item.as_object().and_then(|methods| methods.values().next()).cloned().unwrap_or_default();
        if item["get"].is_object() {
            item["head"] = head_object(&item["get"]);
        }
        let tag = first["tags"][0].as_str().unwrap_or_default();
        item["options"] = preflight_object(&capitalized(&first), tag, COMMON, public_urls);
        item["options"]["parameters"] = path_parameters(&first);
        document["paths"][path] = item;
    }
    for (name, schema) in objects(&additions["schemas"]) {
        document["components"]["schemas"][name] = schema;
    }
    document["components"]["securitySchemes"]["personalToken"] = additions["security_scheme"].clone();
    if let Some(tags) = document["tags"].as_array_mut() {
        tags.push(additions["tag"].clone());
    }
    document
}

/// Adds the headers that every response has, and the errors of every operation.
fn complete(operation: &mut Value, public_urls: &PublicUrls) {
    let common_headers = header_references(json_response(""));
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (_, response) in responses.iter_mut() {
        let mut headers = response["headers"].as_object().cloned().unwrap_or_default();
        headers.extend(common_headers.as_object().cloned().unwrap_or_default());
        response["headers"] = headers.into();
    }
    for status in COMMON_STATUSES {
        let common = refusal_response_object(status, COMMON, public_urls, true);
        match responses.get_mut(status.as_str()) {
            Some(response) => add_examples(response, &common),
            None => drop(responses.insert(status.as_str().to_owned(), common)),
        }
    }
}

fn add_examples(response: &mut Value, common: &Value) {
    let examples = |response: &Value| response[CONTENT]["application/json"]["examples"].as_object().cloned();
    let mut all: Map<String, Value> = examples(response).unwrap_or_default();
    all.extend(examples(common).unwrap_or_default());
    response[CONTENT]["application/json"]["examples"] = all.into();
}

fn head_object(get: &Value) -> Value {
    let mut head = get.clone();
    head["operationId"] = format!("head{}", capitalized(get)).into();
    head["summary"] = "Like GET, without the body".into();
    for (_, response) in head["responses"].as_object_mut().into_iter().flatten() {
        if let Some(response) = response.as_object_mut() {
            response.remove(CONTENT);
        }
    }
    head
}

/// The parameters of the path. A preflight accepts any value of them.
fn path_parameters(operation: &Value) -> Value {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let any_value = |parameter: &Value| {
        json!({
            "name": parameter["name"], "in": "path", "required": true, "description": parameter["description"],
            "schema": { "type": "string" },
        })
    };
    parameters.filter(|parameter| parameter["in"] == "path").map(any_value).collect()
}

/// The id of an operation, to be appended to a word.
fn capitalized(operation: &Value) -> String {
    let mut id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    if let Some(initial) = id.get_mut(..1) {
        initial.make_ascii_uppercase();
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::document::openapi_document;

    #[test]
    fn added_operations_get_common_headers_and_errors() {
        let url = || "https://ip.example.com".to_owned();
        let urls = PublicUrls { base: url(), docs: url(), signup: url(), enterprise: url(), dashboard: url() };
        let id =
            |schema| json!({ "name": "id", "in": "path", "required": true, "description": "Id.", "schema": schema });
        let parameters = json!([id(json!({ "type": "integer" })), { "name": "page", "in": "query" }]);
        let get = json!({ "operationId": "listThings", "tags": ["things"], "parameters": parameters, "responses": {
            "200": { "description": "Success", "content": {} },
            "403": { "description": "No", "headers": { "X-Own": {} }, "content": {} },
        } });
        let additions = json!({
            "paths": { "/things/{id}": { "get": get } }, "schemas": { "Thing": { "type": "object" } },
            "tag": { "name": "things" }, "security_scheme": { "type": "http" },
        });
        let document = with_operations(openapi_document(&urls), &additions, &urls);
        let item = &document["paths"]["/things/{id}"];
        assert_eq!(item["head"]["operationId"], "headListThings");
        assert!(item["head"]["responses"]["200"]["content"].is_null());
        assert_eq!(item["options"]["operationId"], "preflightListThings");
        assert_eq!(item["options"]["parameters"], json!([id(json!({ "type": "string" }))]));
        let responses = &item["get"]["responses"];
        assert!(responses["200"]["headers"]["X-Request-Id"].is_object() && responses["414"].is_object());
        assert!(responses["403"]["headers"]["X-Own"].is_object());
        assert!(responses["403"]["content"]["application/json"]["examples"]["network_blocked"].is_object());
        assert!(document["components"]["schemas"]["Thing"].is_object() && document["paths"]["/api/v1/ip"].is_object());
    }
}
