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
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use ipseity_domain::Scope;
use serde_json::{Map, Value, json};

use crate::Api;
use crate::error::ErrorBodies;
use crate::meta::API_VERSION;
use crate::operation::Operation;
use crate::public_urls::PublicUrls;
use crate::routes::{ROUTES, preflight_response};
use crate::service::{insert_common_headers, insert_server_timing};

/// Stands for an answer's own id in examples.
const EXAMPLE_REQUEST_ID: &str = "5d2c8f0a9b314e67";

/// The document in both forms, written once.
pub(crate) struct OpenApiDocuments {
    json: Bytes,
    yaml: Bytes,
}

impl OpenApiDocuments {
    pub(crate) fn new(public_urls: &PublicUrls) -> Self {
        let document = openapi_document(public_urls);
        Self { json: document.to_string().into(), yaml: yaml::to_yaml(&document).into() }
    }
}

pub(crate) async fn openapi_json_handler(State(api): State<Arc<Api>>) -> Response {
    api.finish_response(
        Operation::OpenapiJson.label(),
        Ok(document_response(api.openapi_documents.json.clone(), "application/json")),
    )
}

pub(crate) async fn openapi_yaml_handler(State(api): State<Arc<Api>>) -> Response {
    api.finish_response(
        Operation::OpenapiJson.label(),
        Ok(document_response(api.openapi_documents.yaml.clone(), "application/yaml")),
    )
}

fn document_response(body: Bytes, content_type: &'static str) -> Response {
    let content_type = (CONTENT_TYPE, HeaderValue::from_static(content_type));
    let cacheable = (CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    ([content_type, cacheable], body).into_response()
}

/// The whole document.
#[must_use]
pub fn openapi_document(public_urls: &PublicUrls) -> Value {
    let paths: Map<String, Value> =
        ROUTES.iter().map(|(path, operation)| ((*path).to_owned(), path_item(*operation, public_urls))).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ipseity",
            "version": API_VERSION,
            "summary": "Tells a caller who it is on the network.",
            "description": "One GET returns the caller's own IP address, place, network operator and connection: as much of it as the API key's \
                scope allows. The service never looks up an address that a caller names, and stores neither addresses nor answers.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "externalDocs": { "url": public_urls.docs, "description": "Every error: its cause, an example, and what to do." },
        "servers": [{ "url": public_urls.base }],
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

fn path_item(operation: Operation, public_urls: &PublicUrls) -> Value {
    let id = operation.operation_id();
    let mut capitalized = id.to_owned();
    capitalized[..1].make_ascii_uppercase();
    json!({
        "get": operation_object(operation, public_urls, id, operation.summary(), true),
        "head": operation_object(operation, public_urls, &format!("head{capitalized}"), "As GET, without the body", false),
        "options": {
            "operationId": format!("preflight{capitalized}"),
            "tags": [tag(operation)],
            "summary": "CORS preflight",
            "description": "What a browser asks before it calls from another origin. Never charged.",
            "security": [],
            "responses": {
                "204": { "description": "Allowed, for a day.", "headers": header_references(preflight_response()) },
                "414": refusal_response_object("The address is too long.", StatusCode::URI_TOO_LONG, operation, public_urls, true),
                "500": refusal_response_object("Something failed on our side.", StatusCode::INTERNAL_SERVER_ERROR, operation, public_urls, true),
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

fn operation_object(
    operation: Operation,
    public_urls: &PublicUrls,
    operation_id: &str,
    summary: &str,
    has_body: bool,
) -> Value {
    let mut responses = Map::new();
    let mut success = json!({ "description": "Answered.", "headers": header_references(example::response(operation)) });
    if has_body {
        success["content"] = example::content(operation);
    }
    responses.insert("200".to_owned(), success);
    for refusal in operation.refusals() {
        let status = refusal.status();
        let description = status_description(operation, status);
        responses
            .entry(status.as_str())
            .or_insert_with(|| refusal_response_object(description, status, operation, public_urls, has_body));
    }
    let is_lookup = operation == Operation::Lookup;
    json!({
        "operationId": operation_id,
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
const fn status_description(operation: Operation, status: StatusCode) -> &'static str {
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
fn refusal_response_object(
    description: &str,
    status: StatusCode,
    operation: Operation,
    public_urls: &PublicUrls,
    has_body: bool,
) -> Value {
    let refusals: Vec<_> = operation.refusals().into_iter().filter(|refusal| refusal.status() == status).collect();
    let headers =
        refusals.first().map(|refusal| header_references(ErrorBodies::new(public_urls.clone()).response(*refusal)));
    let mut response = json!({ "description": description, "headers": headers });
    if has_body {
        response["content"] = example::refusal_content(&refusals, public_urls);
    }
    response
}

/// The headers of an answer, as references to their descriptions.
fn header_references(mut response: Response) -> Value {
    let headers = response.headers_mut();
    insert_common_headers(headers, EXAMPLE_REQUEST_ID);
    insert_server_timing(headers, Duration::ZERO);
    headers.remove(CONTENT_TYPE);
    let present = header::NAMES.iter().filter(|name| headers.contains_key(**name));
    let references: Map<String, Value> =
        present.map(|name| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))).collect();
    debug_assert_eq!(references.len(), headers.keys_len(), "a header is not described");
    references.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_urls() -> PublicUrls {
        let url = |path: &str| format!("https://ip.example.com/{path}");
        PublicUrls {
            base: "https://ip.example.com".to_owned(),
            docs: url("docs"),
            signup: url("signup"),
            enterprise: url("enterprise"),
            dashboard: url("keys"),
        }
    }

    #[test]
    fn openapi_describes_every_route_and_method() {
        let document = openapi_document(&example_urls());
        let paths = document["paths"].as_object().expect("paths");
        assert!(paths.keys().eq(ROUTES.iter().map(|(path, _)| path)));
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
    fn every_openapi_reference_resolves() {
        let document = openapi_document(&example_urls());
        let text = document.to_string();
        let references: Vec<_> = text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(references.len() > 50);
        for reference in references {
            assert!(document.pointer(reference).is_some(), "{reference} leads nowhere");
        }
    }

    #[test]
    fn each_status_has_an_example_of_every_refusal() {
        let document = openapi_document(&example_urls());
        let lookup = &document["paths"]["/api/v1/ip"]["get"]["responses"];
        let examples = |status: &str| {
            let examples = lookup[status]["content"]["application/json"]["examples"].as_object();
            examples.expect("examples").keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(examples("200"), ["ip", "geo", "full"]);
        assert_eq!(examples("401"), ["missing_api_key", "invalid_api_key"]);
        assert_eq!(examples("403"), ["inactive_api_key", "paused"]);
        assert_eq!(examples("429"), ["quota_exhausted", "burst_exceeded"]);
    }
}
