//! Examples: answers as the handlers give them, about a client that does not exist.

use std::net::{IpAddr, Ipv4Addr};

use axum::response::Response;
use bytes::Bytes;
use domain::plan::FREE_DAILY_LIMIT;
use domain::{Address, Client, Colo, Connection, Facts, HttpProtocol, Network, Place, Scope, Tls, TlsVersion, View};
use ledger::Charged;
use serde_json::{Map, Value, json};

use crate::links::Links;
use crate::lookup::answer_with;
use crate::meta::{INTERFACE, meta_file};
use crate::operation::{EXAMPLE_NOW, Operation};
use crate::projection::{self, Told};
use crate::refusal::Refusal;

const PLACE: Place<'static> = Place {
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
    let connection = Connection {
        http_protocol: Some(HttpProtocol::Http2),
        tls: Some(Tls { version: TlsVersion::V13, cipher: Some("TLS_AES_128_GCM_SHA256") }),
        rtt_ms: Some(12),
        colo: Colo::parse("CDG"),
    };
    Client { address: Address::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))), connection }
}

/// A lookup's body, as a view shows it.
pub(super) fn body(view: View) -> Value {
    let facts = Facts { place: PLACE, network: NETWORK };
    serde_json::from_slice(&projection::answer(&client(), &Told::write(&facts, view), view)).unwrap_or_default()
}

/// An operation's answer, for its headers.
pub(super) fn answer(operation: Operation) -> Response {
    let charged = Charged { now: EXAMPLE_NOW, limit: FREE_DAILY_LIMIT, day: EXAMPLE_NOW.day(), used: 42 };
    match operation {
        Operation::Lookup | Operation::Demo => answer_with(Vec::new(), &charged),
        Operation::Meta => meta_file(Vec::new()),
        Operation::OpenapiJson | Operation::OpenapiYaml => super::document_file(Bytes::new(), "application/json"),
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
                (scope.name().to_owned(), json!({ "summary": summary, "value": body(View::Scope(scope)) }))
            };
            json("IpResponse", Scope::ALL.into_iter().map(example).collect::<Map<_, _>>().into())
        }
        Operation::Demo => json("DemoResponse", json!({ "demo": { "value": body(View::Demo) } })),
        Operation::Meta => json("Meta", json!({ "meta": { "value": meta() } })),
        Operation::OpenapiJson => {
            json!({ "application/json": { "schema": { "type": "object" }, "example": { "openapi": "3.1.0" } } })
        }
        Operation::OpenapiYaml => {
            json!({ "application/yaml": { "schema": { "type": "object" }, "example": { "openapi": "3.1.0" } } })
        }
    }
}

/// The bodies of refusals, by the names that metrics have for them.
pub(super) fn refused(refusals: &[Refusal], links: &Links) -> Value {
    let example = |refusal: &Refusal| (refusal.outcome().to_owned(), json!({ "value": refusal.body(links) }));
    let examples: Map<String, Value> = refusals.iter().map(example).collect();
    json!({ "application/json": { "schema": { "$ref": "#/components/schemas/ErrorResponse" }, "examples": examples } })
}

fn meta() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "interface": INTERFACE,
        "databases": [{
            "type": "GeoLite2-City", "kind": "city", "built_at": "2026-11-10T14:00:00Z", "age_days": 5,
            "attribution": "This product includes GeoLite2 data created by MaxMind, available from https://www.maxmind.com.",
            "attribution_url": "https://www.maxmind.com",
        }],
        "notices": geo::NOTICES,
    })
}
