//! GET /api/v1/openapi.json: the interface as OpenAPI 3.1, made from the fields and the refusals that the code itself uses.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::{Field, Scope, View};
use http::{HeaderValue, header};
use serde_json::{Map, Value, json};

use crate::Api;
use crate::meta::INTERFACE;

pub(crate) async fn openapi(State(api): State<Arc<Api>>) -> Response {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let cacheable = (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    api.finish("openapi", Ok(([json, cacheable], document(&api.links.base).to_string()).into_response()))
}

/// The whole document.
fn document(base_url: &str) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ipseity",
            "version": INTERFACE,
            "summary": "Tells a caller who it is on the network.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": base_url }],
        "paths": {
            "/api/v1/ip": { "get": lookup(), "options": preflight("preflightLookup") },
            "/api/v1/ip/demo": { "get": demo(), "options": preflight("preflightDemo") },
            "/api/v1/meta": { "get": meta(), "options": preflight("preflightMeta") },
        },
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "The API key." },
                "query": { "type": "apiKey", "in": "query", "name": "key", "description": "The API key, where headers cannot be set." },
            },
            "schemas": {
                "IpResponse": answer(View::Scope(Scope::Full), &["status"]),
                "DemoResponse": answer(View::Demo, &["status"]),
                "ErrorResponse": error(),
                "Meta": meta_schema(),
            },
        },
    })
}

fn lookup() -> Value {
    json!({
        "operationId": "lookup",
        "summary": "The caller's own metadata, as much of it as the key's scope allows.",
        "security": [{ "bearer": [] }, { "query": [] }],
        "parameters": [{
            "name": "scope", "in": "query", "required": false,
            "description": "Narrows the key's scope for this request; any other value is ignored.",
            "schema": { "type": "string", "enum": Scope::ALL.map(Scope::name) },
        }],
        "responses": {
            "200": limited("Answered.", "IpResponse", false),
            "401": refused("No key, or one that does not exist."),
            "403": refused("The key is deactivated or paused."),
            "429": limited("The day's quota is used up, or the burst limit was exceeded and the key is now paused.", "ErrorResponse", true),
            "500": refused("Something failed on our side."),
        },
    })
}

fn demo() -> Value {
    json!({
        "operationId": "demo",
        "summary": "A fixed set of fields, without a key; one quota for all callers.",
        "security": [],
        "responses": {
            "200": limited("Answered.", "DemoResponse", false),
            "429": limited("Today's quota is used up.", "ErrorResponse", true),
            "500": refused("Something failed on our side."),
        },
    })
}

fn meta() -> Value {
    json!({
        "operationId": "meta",
        "summary": "Version, geo databases in use with their build dates, and whom they are owed to. Uncharged.",
        "security": [],
        "responses": { "200": content("Answered; may be cached.", "Meta") },
    })
}

fn preflight(operation: &str) -> Value {
    json!({ "operationId": operation, "summary": "CORS preflight.", "security": [], "responses": { "204": { "description": "Allowed." } } })
}

fn content(description: &str, schema: &str) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn refused(description: &str) -> Value {
    content(description, "ErrorResponse")
}

/// An answer that tells a limit; a refusal also tells when to come back.
fn limited(description: &str, schema: &str, refusal: bool) -> Value {
    let integer = |meaning: &str| json!({ "description": meaning, "schema": { "type": "integer" } });
    let mut headers = json!({
        "X-RateLimit-Limit": integer("The limit."),
        "X-RateLimit-Remaining": integer("Requests left."),
        "X-RateLimit-Reset": integer("Unix time of the next reset."),
    });
    if refusal {
        headers["Retry-After"] = integer("Seconds until the next reset.");
    }
    let mut response = content(description, schema);
    response["headers"] = headers;
    response
}

fn answer(view: View, required: &[&str]) -> Value {
    let property = |field: Field| {
        let schema = if field == Field::Status {
            json!({ "type": "string", "const": "success", "description": field.meaning() })
        } else {
            json!({ "type": [field.json_type(), "null"], "description": field.meaning(), "x-scope": field.scope().name() })
        };
        (field.name().to_owned(), schema)
    };
    let properties: Map<String, Value> = view.fields().map(property).collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

fn error() -> Value {
    let text = |meaning: &str| json!({ "type": "string", "description": meaning });
    let link = |meaning: &str| json!({ "type": "string", "format": "uri", "description": meaning });
    json!({
        "type": "object",
        "required": ["error", "message", "docs"],
        "properties": {
            "error": text("A code in snake case."),
            "message": text("What happened, and what to do."),
            "docs": link("The section of the documentation."),
            "enterprise": link("On the daily quota's 429 only."),
            "signup": link("On the demo's 429 only."),
        },
    })
}

fn meta_schema() -> Value {
    let nullable = json!({ "type": ["string", "null"] });
    json!({
        "type": "object",
        "required": ["version", "interface", "databases", "notices"],
        "properties": {
            "version": { "type": "string" },
            "interface": { "type": "string", "const": INTERFACE },
            "databases": { "type": "array", "items": { "type": "object", "properties": {
                "type": { "type": "string" },
                "kind": { "type": "string" },
                "built_at": { "type": "string", "format": "date-time" },
                "age_days": { "type": "integer" },
                "attribution": nullable,
                "attribution_url": nullable,
            } } },
            "notices": { "type": "array", "items": { "type": "string" } },
        },
    })
}
