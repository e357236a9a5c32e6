//! GET /api/v1/openapi.json and .yaml: the interface as OpenAPI 3.1, made of what the code itself uses: the route table, the fields, and answers as the
//! handlers give them, whose headers and bodies are the document's headers and examples.

mod example;
mod header;
mod schema;
mod yaml;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::Scope;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use crate::Api;
use crate::dress::{dress_headers, time_headers};
use crate::links::Links;
use crate::meta::INTERFACE;
use crate::operation::Operation;
use crate::refusal::Wordings;
use crate::routes::{OPERATIONS, preflight};

/// Stands for an answer's own id in examples.
const REQUEST_ID: &str = "5d2c8f0a9b314e67";

/// The document in both forms, written once.
pub(crate) struct Documents {
    json: Bytes,
    yaml: Bytes,
}

impl Documents {
    pub(crate) fn new(links: &Links) -> Self {
        let document = document(links);
        Self { json: document.to_string().into(), yaml: yaml::written(&document).into() }
    }
}

pub(crate) async fn json(State(api): State<Arc<Api>>) -> Response {
    api.finish(Operation::OpenapiJson.label(), Ok(document_file(api.documents.json.clone(), "application/json")))
}

pub(crate) async fn yaml(State(api): State<Arc<Api>>) -> Response {
    api.finish(Operation::OpenapiJson.label(), Ok(document_file(api.documents.yaml.clone(), "application/yaml")))
}

fn document_file(text: Bytes, kind: &'static str) -> Response {
    let kind = (CONTENT_TYPE, HeaderValue::from_static(kind));
    let cacheable = (CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    ([kind, cacheable], text).into_response()
}

/// The whole document.
#[must_use]
pub fn document(links: &Links) -> Value {
    let paths: Map<String, Value> =
        OPERATIONS.iter().map(|(path, operation)| ((*path).to_owned(), path_item(*operation, links))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ipseity",
            "version": INTERFACE,
            "summary": "Tells a caller who it is on the network.",
            "description": "One GET returns the caller's own IP address, place, network operator and connection: as much of it as the API key's \
                scope allows. The service never looks up an address that a caller names, and stores neither addresses nor answers.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "externalDocs": { "url": links.docs, "description": "Every error: its cause, an example, and what to do." },
        "servers": [{ "url": links.base }],
        "tags": [
            { "name": "lookup", "description": "Who the caller is." },
            { "name": "service", "description": "What the service is and what it is made of." },
        ],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "The API key." },
                "query": { "type": "apiKey", "in": "query", "name": "key", "description": "The API key, where headers cannot be set." },
            },
            "headers": header::components(),
            "schemas": schema::components(),
        },
    })
}

fn path_item(operation: Operation, links: &Links) -> Value {
    let id = operation.id();
    let mut capital = id.to_owned();
    capital[..1].make_ascii_uppercase();
    json!({
        "get": described(operation, links, id, operation.summary(), true),
        "head": described(operation, links, &format!("head{capital}"), "As GET, without the body", false),
        "options": {
            "operationId": format!("preflight{capital}"),
            "tags": [tag(operation)],
            "summary": "CORS preflight",
            "description": "What a browser asks before it calls from another origin. Never charged.",
            "security": [],
            "responses": {
                "204": { "description": "Allowed, for a day.", "headers": headers_of(preflight()) },
                "414": response("The address is too long.", StatusCode::URI_TOO_LONG, operation, links, true),
                "500": response("Something failed on our side.", StatusCode::INTERNAL_SERVER_ERROR, operation, links, true),
            },
        },
    })
}

const fn tag(operation: Operation) -> &'static str {
    match operation {
        Operation::Lookup | Operation::Demo => "lookup",
        Operation::Meta | Operation::OpenapiJson | Operation::OpenapiYaml => "service",
    }
}

fn described(operation: Operation, links: &Links, id: &str, summary: &str, has_body: bool) -> Value {
    let mut responses = Map::new();
    let mut answered = json!({ "description": "Answered.", "headers": headers_of(example::answer(operation)) });
    if has_body {
        answered["content"] = example::content(operation);
    }
    responses.insert("200".to_owned(), answered);
    for refusal in operation.refusals() {
        let status = refusal.status();
        let sentence = sentence(operation, status);
        responses.entry(status.as_str()).or_insert_with(|| response(sentence, status, operation, links, has_body));
    }
    let is_lookup = operation == Operation::Lookup;
    json!({
        "operationId": id,
        "tags": [tag(operation)],
        "summary": summary,
        "description": operation.description(),
        "security": if is_lookup { json!([{ "bearer": [] }, { "query": [] }]) } else { json!([]) },
        "parameters": if is_lookup { json!([scope_parameter()]) } else { json!([]) },
        "responses": responses,
    })
}

fn scope_parameter() -> Value {
    json!({
        "name": "scope", "in": "query", "required": false,
        "description": "Narrows the key's scope for this request. A wider one, or any other value, is ignored.",
        "schema": { "type": "string", "enum": Scope::ALL.map(Scope::name) },
        "example": Scope::Geo.name(),
    })
}

/// What a status means in an operation.
const fn sentence(operation: Operation, status: StatusCode) -> &'static str {
    match (operation, status) {
        (_, StatusCode::UNAUTHORIZED) => "No key was sent, or one that does not exist.",
        (_, StatusCode::FORBIDDEN) => "The key is deactivated or paused.",
        (Operation::Demo, StatusCode::TOO_MANY_REQUESTS) => "Today's quota, shared by all callers, is used up.",
        (_, StatusCode::TOO_MANY_REQUESTS) => {
            "The day's quota is used up; or the burst limit was exceeded, and the key is now paused."
        }
        (_, StatusCode::URI_TOO_LONG) => "The address is too long.",
        _ => "Something failed on our side; the request may be sent again.",
    }
}

/// A refusal's response: all that give this status, as they are given.
fn response(sentence: &str, status: StatusCode, operation: Operation, links: &Links, has_body: bool) -> Value {
    let refusals: Vec<_> = operation.refusals().into_iter().filter(|refusal| refusal.status() == status).collect();
    let headers = refusals.first().map(|refusal| headers_of(Wordings::new(links.clone()).answer(*refusal)));
    let mut response = json!({ "description": sentence, "headers": headers });
    if has_body {
        response["content"] = example::refused(&refusals, links);
    }
    response
}

/// The headers of an answer, as references to their descriptions.
fn headers_of(mut answer: Response) -> Value {
    let headers = answer.headers_mut();
    dress_headers(headers, REQUEST_ID);
    time_headers(headers, Duration::ZERO);
    headers.remove(CONTENT_TYPE);
    let named = header::NAMES.iter().filter(|name| headers.contains_key(**name));
    let references: Map<String, Value> =
        named.map(|name| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))).collect();
    debug_assert_eq!(references.len(), headers.keys_len(), "a header is not described");
    references.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        let page = |path: &str| format!("https://ip.example.com/{path}");
        Links {
            base: "https://ip.example.com".to_owned(),
            docs: page("docs"),
            signup: page("signup"),
            enterprise: page("enterprise"),
            dashboard: page("keys"),
        }
    }

    #[test]
    fn every_address_of_the_router_is_described_under_each_method() {
        let document = document(&links());
        let paths = document["paths"].as_object().expect("paths");
        assert!(paths.keys().eq(OPERATIONS.iter().map(|(path, _)| path)));
        let mut ids = std::collections::BTreeSet::new();
        for item in paths.values() {
            let methods: Vec<_> = item.as_object().expect("methods").keys().collect();
            assert_eq!(methods, ["get", "head", "options"]);
            for operation in item.as_object().expect("methods").values() {
                assert!(ids.insert(operation["operationId"].as_str().expect("an id")), "twice: {operation}");
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document(&links());
        let text = document.to_string();
        let references: Vec<_> = text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(references.len() > 50);
        for reference in references {
            assert!(document.pointer(reference).is_some(), "{reference} leads nowhere");
        }
    }

    #[test]
    fn a_status_has_an_example_of_each_of_its_refusals() {
        let document = document(&links());
        let lookup = &document["paths"]["/api/v1/ip"]["get"]["responses"];
        let examples = |status: &str| {
            let examples = lookup[status]["content"]["application/json"]["examples"].as_object();
            examples.expect("examples").keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(examples("200"), ["ip", "geo", "full"]);
        assert_eq!(examples("401"), ["missing_api_key", "invalid_api_key"]);
        assert_eq!(examples("403"), ["inactive_api_key", "paused"]);
        assert_eq!(examples("429"), ["day_spent", "burst"]);
    }
}
