//! Example responses of the document.

use axum::response::Response;
use http::HeaderValue;
use ipseity_domain::{AddressFamily, BURST_LIMIT, FieldSet, Scope};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::error::Refusal;
use crate::key_status::body::{KeyStatusBody, sample_status};
use crate::lookup::renderer::example::{example_body, example_lookup_headers};
use crate::operation::{API_VERSION, EXAMPLE_NOW, Operation};
use crate::pairing::PAIR_UNUSED_HEADER;
use crate::public_urls::PublicUrls;
use crate::response::rate_limit_headers::{BurstLeft, BurstUse};
use crate::response::{cacheable_response, json_response};
use crate::tickets::body::TicketBody;
use crate::tickets::bounds::{LIFETIME_S_DEFAULT, USES_DEFAULT};

/// A token of pairing.
pub(super) const PAIR_TOKEN: &str = "q8XrVbnY2cRk0pGf1tJzWm5sAeHdLu7oQiT3xNvC6yBZKj4lS9EwPgRhUaDfMbOtVqI_k2c";

/// A ticket.
const TICKET: &str =
    "ipt_NWnGq2XkRzVb0pYf1tJcWm5sAeHdLu7oQiT3xNvC6yBZKj4lS9EwPgRhUaDfMbOtVqI_k2cJd8Zr0sGyTn4uXhB1vLw7mKe3oPiQaFzC5";
/// The origin of a page.
const EXAMPLE_ORIGIN: &str = "https://shop.example.com";

/// The successful response of an operation, without a body.
pub(super) fn response(operation: Operation) -> Response {
    match operation {
        Operation::Lookup => {
            let mut response = example_lookup_headers(Some(BurstUse {
                limit: BURST_LIMIT,
                left: Some(BurstLeft { requests: 257, until_s: 18 }),
            }));
            response.headers_mut().insert(PAIR_UNUSED_HEADER, HeaderValue::from_static("expired"));
            response
        }
        Operation::Demo => example_lookup_headers(None),
        Operation::KeyStatus | Operation::Tickets | Operation::Pair => json_response(""),
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
        Operation::KeyStatus => {
            let body = |is_for_page| json!({ "value": KeyStatusBody::new(&sample_status(Scope::Geo), is_for_page, EXAMPLE_NOW) });
            json("KeyStatus", json!({ "key_status": body(false), "with_origin": body(true) }))
        }
        Operation::Tickets => json("TicketResponse", json!({ "ticket": { "value": ticket_body() } })),
        Operation::Pair => json("PairResponse", json!({ "pair": { "value": pair_body() } })),
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

/// The body of a request for a ticket.
pub(super) fn ticket_options() -> Value {
    let example = json!({ "origin": EXAMPLE_ORIGIN, "scope": Scope::Geo.name(), "lifetime_s": LIFETIME_S_DEFAULT });
    let schema = json!({ "$ref": "#/components/schemas/TicketOptions" });
    json!({ "required": false, "content": { "application/json": { "schema": schema, "example": example } } })
}

fn ticket_body() -> Value {
    let expires_at_s = EXAMPLE_NOW.as_secs() + LIFETIME_S_DEFAULT;
    json!(TicketBody {
        status: "success",
        ticket: TICKET,
        scope: Scope::Geo.name(),
        origin: Some(EXAMPLE_ORIGIN),
        uses: USES_DEFAULT,
        expires_in_s: LIFETIME_S_DEFAULT,
        expires_at: Timestamp::from_second(expires_at_s.cast_signed()).unwrap_or_default().to_string(),
    })
}

fn pair_body() -> Value {
    json!({ "token": PAIR_TOKEN, "family": AddressFamily::Ipv4.name(), "expires_in_s": 30 })
}

fn meta_body() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "interface": API_VERSION,
        "ipv4_url": "https://ipv4.ip.example.com",
        "ipv6_url": "https://ipv6.ip.example.com",
        "databases": [{
            "type": "GeoLite2-City", "kind": "city", "built_at": "2026-11-10T14:00:00Z", "age_days": 5,
            "attribution": "This product includes GeoLite2 data created by MaxMind, available from https://www.maxmind.com.",
            "attribution_url": "https://www.maxmind.com",
        }],
        "notices": ipseity_geo::BUILTIN_DATA_NOTICES,
    })
}
