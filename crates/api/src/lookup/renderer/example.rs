//! The example client of the OpenAPI document, rendered by the same code as real clients.

use std::net::{IpAddr, Ipv4Addr};

use axum::response::Response;
use ipseity_domain::plan::FREE_DAILY_LIMIT;
use ipseity_domain::{
    Address, Client, Colo, ConnectionFacts, FieldSet, GeoFacts, HttpProtocol, Location, Network, TlsInfo, TlsVersion,
};
use ipseity_ledger::Quota;
use serde_json::Value;

use crate::lookup::renderer::body::{RenderedFacts, render_body};
use crate::lookup::renderer::lookup_response;
use crate::operation::EXAMPLE_NOW;

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

fn example_client() -> Client {
    let connection = ConnectionFacts {
        http_protocol: Some(HttpProtocol::Http2),
        is_encrypted: Some(true),
        tls: Some(TlsInfo { version: TlsVersion::V13, cipher: Some("TLS_AES_128_GCM_SHA256") }),
        rtt_ms: Some(12),
        colo: Colo::parse("CDG"),
    };
    Client { address: Address::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))), connection }
}

/// The body of a lookup by the example client.
pub(crate) fn example_body(field_set: FieldSet) -> Value {
    let facts = GeoFacts { location: LOCATION, network: NETWORK };
    let body = render_body(&example_client(), &RenderedFacts::render(&facts, field_set), field_set);
    serde_json::from_slice(&body).unwrap_or_default()
}

/// The response to a lookup, with its headers and without a body.
pub(crate) fn example_lookup_headers() -> Response {
    let quota = Quota { now: EXAMPLE_NOW, limit: FREE_DAILY_LIMIT, day: EXAMPLE_NOW.day(), used: 42 };
    lookup_response(Vec::new(), &quota)
}
