//! Example responses of the document.

use axum::response::Response;
use ipseity_domain::{FieldSet, Scope};
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::lookup::renderer::example::{example_body, example_lookup_headers};
use crate::operation::{API_VERSION, Operation};
use crate::public_urls::PublicUrls;
use crate::response::cacheable_response;

/// The successful response of an operation, without a body.
pub(super) fn response(operation: Operation) -> Response {
    match operation {
        Operation::Lookup | Operation::Demo => example_lookup_headers(),
        Operation::Meta | Operation::OpenapiJson | Operation::OpenapiYaml => cacheable_response("", "application/json"),
    }
}

/// The content of an operation's successful response.
pub(super) fn content(operation: Operation) -> Value {
    let json = |schema: &str, examples: Value| {
        let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
        json!({ "application/json": { "schema": schema, "examples": examples } })
    };
    match operation {
        Operation::Lookup => {
            let example = |scope: Scope| {
                let summary = format!("Scope {scope}");
                (scope.name().to_owned(), json!({ "summary": summary, "value": example_body(FieldSet::Scope(scope)) }))
            };
            json("IpResponse", Scope::ALL.into_iter().map(example).collect::<Map<_, _>>().into())
        }
        Operation::Demo => json("DemoResponse", json!({ "demo": { "value": example_body(FieldSet::Demo) } })),
        Operation::Meta => json("Meta", json!({ "meta": { "value": meta_body() } })),
        Operation::OpenapiJson => {
            json!({ "application/json": { "schema": { "type": "object" }, "example": { "openapi": "3.1.0" } } })
        }
        Operation::OpenapiYaml => {
            json!({ "application/yaml": { "schema": { "type": "object" }, "example": { "openapi": "3.1.0" } } })
        }
    }
}

/// The bodies of refusals, by outcome label.
pub(super) fn refusal_content(refusals: &[Refusal], public_urls: &PublicUrls) -> Value {
    let example =
        |refusal: &Refusal| (refusal.outcome_label().to_owned(), json!({ "value": refusal.body(public_urls) }));
    let examples: Map<String, Value> = refusals.iter().map(example).collect();
    json!({ "application/json": { "schema": { "$ref": "#/components/schemas/ErrorResponse" }, "examples": examples } })
}

fn meta_body() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "interface": API_VERSION,
        "databases": [{
            "type": "GeoLite2-City", "kind": "city", "built_at": "2026-11-10T14:00:00Z", "age_days": 5,
            "attribution": "This product includes GeoLite2 data created by MaxMind, available from https://www.maxmind.com.",
            "attribution_url": "https://www.maxmind.com",
        }],
        "notices": ipseity_geo::BUILTIN_DATA_NOTICES,
    })
}
