//! Generates the OpenAPI document from code: operations and fields from their lists, headers and examples
//! from responses that the same functions build for real requests.

use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use ipseity_domain::Scope;
use serde_json::{Map, Value, json};

use crate::error::ErrorBodies;
use crate::lookup::renderer::sample_caller::{HOME, SAMPLE_CALLERS};
use crate::lookup::test_failure::TestFailure;
use crate::openapi::{example, header, schema, yaml};
use crate::operation::{API_VERSION, Operation};
use crate::public_urls::PublicUrls;
use crate::response::preflight::preflight_response;
use crate::response::{insert_common_headers, insert_cross_origin_headers, insert_server_timing};

/// The request id in examples.
const EXAMPLE_REQUEST_ID: &str = "5d2c8f0a9b314e67";

/// The document as JSON and as YAML, generated once.
pub(crate) struct OpenApiDocuments {
    pub(super) json: Bytes,
    pub(super) yaml: Bytes,
}

impl OpenApiDocuments {
    pub(crate) fn new(document: &Value) -> Self {
        Self { json: format!("{document}\n").into(), yaml: yaml::to_yaml(document).into() }
    }
}

/// Generates the document.
#[must_use]
pub fn openapi_document(public_urls: &PublicUrls) -> Value {
    let paths: Map<String, Value> = Operation::ALL
        .into_iter()
        .map(|operation| (operation.path().to_owned(), path_item(operation, public_urls)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ipseity",
            "version": API_VERSION,
            "summary": "Returns the caller's IP address, location, network and connection.",
            "description": "One API call returns the caller's IP address, location, network and connection. The scope of the API key \
                decides which fields are included. The service only looks up the caller, never an address in the request. \
                It stores neither addresses nor responses.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "externalDocs": { "url": public_urls.docs, "description": "Every error with its cause, an example and a fix." },
        "servers": [{ "url": public_urls.base }],
        "tags": [
            { "name": "lookup", "description": "Look up the caller." },
            { "name": "key", "description": "Get the status of the key, and create tickets with it." },
            { "name": "service", "description": "Version, data sources and this document." },
        ],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "The API key, or a ticket for a lookup." },
                "query": { "type": "apiKey", "in": "query", "name": "key", "description": "The API key, for clients that cannot set headers." },
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
    let with_body = operation_object(operation, public_urls, id, operation.summary(), true);
    let mut item = if operation == Operation::Tickets {
        json!({ "post": with_body })
    } else {
        let (head_id, summary) = (format!("head{capitalized}"), "Like GET, without the body");
        json!({ "get": with_body, "head": operation_object(operation, public_urls, &head_id, summary, false) })
    };
    item["options"] = preflight_object(&capitalized, tag(operation), operation, public_urls);
    item
}

/// The CORS preflight, which every path answers. Its errors are those of `like`.
pub(super) fn preflight_object(id: &str, tag: &str, like: Operation, public_urls: &PublicUrls) -> Value {
    json!({
        "operationId": format!("preflight{id}"),
        "tags": [tag],
        "summary": "CORS preflight",
        "description": "The request that a browser sends before a call from another origin. Free.",
        "security": [],
        "responses": {
            "204": { "description": "Allowed. Browsers may cache this for a day.", "headers": header_references(preflight_response(&HeaderMap::new())) },
            "414": refusal_response_object(StatusCode::URI_TOO_LONG, like, public_urls, true),
            "500": refusal_response_object(StatusCode::INTERNAL_SERVER_ERROR, like, public_urls, true),
        },
    })
}

const fn tag(operation: Operation) -> &'static str {
    match operation {
        Operation::Lookup | Operation::Demo | Operation::Pair => "lookup",
        Operation::KeyStatus | Operation::Tickets => "key",
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
    let mut success = json!({ "description": "Success", "headers": header_references(example::response(operation)) });
    if has_body {
        success["content"] = example::content(operation);
    }
    responses.insert("200".to_owned(), success);
    for refusal in operation.refusals() {
        let status = refusal.status();
        responses
            .entry(status.as_str())
            .or_insert_with(|| refusal_response_object(status, operation, public_urls, has_body));
    }
    let is_lookup = operation == Operation::Lookup;
    let security = match operation {
        Operation::Lookup | Operation::KeyStatus => json!([{ "bearer": [] }, { "query": [] }]),
        Operation::Tickets => json!([{ "bearer": [] }]),
        Operation::Demo | Operation::Pair | Operation::Meta | Operation::OpenapiJson | Operation::OpenapiYaml => {
            json!([])
        }
    };
    let mut object = json!({
        "operationId": operation_id,
        "tags": [tag(operation)],
        "summary": summary,
        "description": operation.description(),
        "security": security,
        "parameters": if is_lookup { lookup_parameters() } else { json!([]) },
        "responses": responses,
    });
    if operation == Operation::Tickets {
        object["requestBody"] = example::ticket_options();
    }
    object
}

fn lookup_parameters() -> Value {
    json!([scope_parameter(), as_parameter(), fail_parameter(), pair_parameter()])
}

fn scope_parameter() -> Value {
    json!({
        "name": "scope", "in": "query", "required": false,
        "description": "Narrows the key's scope for this request, in upper or lower case. A wider scope or any other value is ignored.",
        "schema": { "type": "string", "enum": Scope::ALL.map(Scope::name) },
        "example": Scope::Geo.name(),
    })
}

fn as_parameter() -> Value {
    json!({
        "name": "as", "in": "query", "required": false,
        "description": "The made-up caller that a test key returns, in upper or lower case. Ignored for other keys.",
        "schema": { "type": "string", "enum": SAMPLE_CALLERS.iter().map(|caller| caller.name).collect::<Vec<_>>() },
        "example": HOME.name,
    })
}

fn fail_parameter() -> Value {
    json!({
        "name": "fail", "in": "query", "required": false,
        "description": "The error that a test key returns, in upper or lower case. Ignored for other keys.",
        "schema": { "type": "string", "enum": TestFailure::ALL.map(TestFailure::name) },
        "example": TestFailure::Day.name(),
    })
}

fn pair_parameter() -> Value {
    json!({
        "name": "Ipseity-Pair", "in": "header", "required": false,
        "description": "Up to two tokens of `/api/v1/pair`, separated by a comma. The first one of the other address family fills the \
            second address field. If none can be used, the response is the same as without one.",
        "schema": { "type": "string" },
        "example": example::PAIR_TOKEN,
    })
}

/// The response object for all refusals with this status.
pub(super) fn refusal_response_object(
    status: StatusCode,
    operation: Operation,
    public_urls: &PublicUrls,
    has_body: bool,
) -> Value {
    let refusals: Vec<_> = operation.refusals().into_iter().filter(|refusal| refusal.status() == status).collect();
    let headers =
        refusals.first().map(|refusal| header_references(ErrorBodies::new(public_urls.clone()).response(*refusal)));
    let mut description = refusals.iter().map(|refusal| refusal.summary()).collect::<Vec<_>>().join(", or ");
    if let Some(initial) = description.get_mut(..1) {
        initial.make_ascii_uppercase();
    }
    let mut response = json!({ "description": description, "headers": headers });
    if has_body {
        response["content"] = example::refusal_content(&refusals, public_urls);
    }
    response
}

/// The headers of a response, as references to their descriptions.
pub(super) fn header_references(mut response: Response) -> Value {
    let headers = response.headers_mut();
    insert_common_headers(headers, EXAMPLE_REQUEST_ID);
    insert_cross_origin_headers(headers);
    insert_server_timing(headers, Duration::ZERO);
    headers.remove(CONTENT_TYPE);
    let present = header::NAMES.iter().filter(|name| headers.contains_key(**name));
    let references: Map<String, Value> =
        present.map(|name| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }))).collect();
    debug_assert_eq!(references.len(), headers.keys_len(), "every header is described in openapi/header.rs");
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
        let paths = document["paths"].as_object().expect("paths object");
        assert!(paths.keys().eq(Operation::ALL.map(Operation::path).iter()));
        let mut ids = std::collections::BTreeSet::new();
        for item in paths.values() {
            let methods: Vec<_> = item.as_object().expect("path item object").keys().collect();
            assert!(methods == ["get", "head", "options"] || methods == ["post", "options"], "{methods:?}");
            for operation in item.as_object().expect("path item object").values() {
                assert!(ids.insert(operation["operationId"].as_str().expect("operationId")), "duplicate: {operation}");
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
            assert!(document.pointer(reference).is_some(), "{reference} does not resolve");
        }
    }

    #[test]
    fn each_status_has_an_example_of_every_refusal() {
        let document = openapi_document(&example_urls());
        let lookup = &document["paths"]["/api/v1/ip"]["get"]["responses"];
        let examples = |status: &str| {
            let examples = lookup[status]["content"]["application/json"]["examples"].as_object();
            examples.expect("examples object").keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(examples("200"), ["ip", "geo", "full"]);
        assert_eq!(examples("401"), ["missing_api_key", "missing_scheme", "invalid_api_key", "invalid_ticket"]);
        let forbidden = ["inactive_api_key", "paused", "expired"];
        let restricted = ["origin_not_allowed", "network_not_allowed", "ticket_required", "network_blocked"];
        assert_eq!(examples("403"), [&forbidden[..], &restricted].concat());
        assert_eq!(examples("429"), ["quota_exhausted", "burst_exceeded", "caller_limited"]);
    }
}
