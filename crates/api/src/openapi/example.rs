//! Examples: answers as the handlers give them, about a client that does not exist.

use std::net::{IpAddr, Ipv4Addr};

use axum::response::Response;
use bytes::Bytes;
use ipseity_domain::plan::FREE_DAILY_LIMIT;
use ipseity_domain::{
    Address, Client, Colo, ConnectionFacts, FieldSet, GeoFacts, HttpProtocol, Location, Network, Scope, TlsInfo,
    TlsVersion,
};
use ipseity_ledger::Quota;
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::lookup::lookup_response;
use crate::lookup::render::{self, RenderedFacts};
use crate::meta::{API_VERSION, cacheable_json};
use crate::operation::{EXAMPLE_NOW, Operation};
use crate::public_urls::PublicUrls;

const LOCATION: Location<'static> = Location {
    city: Some("Paris"),
    region: Some("Île-de-France"),
    region_code: Some("FR-IDF"),
    country: Some("FR"),
    country_name: Some("France"),
    continent: Some("EU"),
    latitude: Some(48.8534),
    longitude: Some(2.3488),
    accuracy_km: None,
    timezone: Some("Europe/Paris"),
    timezone_offset: Some(3600),
    postal_code: Some("75001"),
    is_eu: Some(true),
    currency: Some("EUR"),
};
const NETWORK: Network<'static> =
    Network { asn: Some(64500), org: Some("Example Networks"), proxy: Some(false), hosting: Some(false) };

fn client() -> Client {
    let connection = ConnectionFacts {
        http_protocol: Some(HttpProtocol::Http2),
        tls: Some(TlsInfo { version: TlsVersion::V13, cipher: Some("TLS_AES_128_GCM_SHA256") }),
        rtt_ms: Some(12),
        colo: Colo::parse("CDG"),
    };
    Client { address: Address::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))), connection }
}

/// A lookup's body, as a view shows it.
pub(super) fn body(field_set: FieldSet) -> Value {
    let facts = GeoFacts { location: LOCATION, network: NETWORK };
    serde_json::from_slice(&render::render_body(&client(), &RenderedFacts::render(&facts, field_set), field_set))
        .unwrap_or_default()
}

/// An operation's answer, for its headers.
pub(super) fn response(operation: Operation) -> Response {
    let quota = Quota { now: EXAMPLE_NOW, limit: FREE_DAILY_LIMIT, day: EXAMPLE_NOW.day(), used: 42 };
    match operation {
        Operation::Lookup | Operation::Demo => lookup_response(Vec::new(), &quota),
        Operation::Meta => cacheable_json(Vec::new()),
        Operation::OpenapiJson | Operation::OpenapiYaml => {
            crate::openapi::document_response(Bytes::new(), "application/json")
        }
    }
}

/// What an operation's answer holds.
pub(super) fn content(operation: Operation) -> Value {
    let json = |schema: &str, examples: Value| {
        let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
        json!({ "application/json": { "schema": schema, "examples": examples } })
    };
    match operation {
        Operation::Lookup => {
            let example = |scope: Scope| {
                let summary = format!("With a key of scope {scope}, or narrowed to it");
                (scope.name().to_owned(), json!({ "summary": summary, "value": body(FieldSet::Scope(scope)) }))
            };
            json("IpResponse", Scope::ALL.into_iter().map(example).collect::<Map<_, _>>().into())
        }
        Operation::Demo => json("DemoResponse", json!({ "demo": { "value": body(FieldSet::Demo) } })),
        Operation::Meta => json("Meta", json!({ "meta": { "value": meta_body() } })),
        Operation::OpenapiJson => {
            json!({ "application/json": { "schema": { "type": "object" }, "example": { "openapi": "3.1.0" } } })
        }
        Operation::OpenapiYaml => {
            json!({ "application/yaml": { "schema": { "type": "object" }, "example": { "openapi": "3.1.0" } } })
        }
    }
}

/// The bodies of refusals, by the names that metrics have for them.
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
