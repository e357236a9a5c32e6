//! `GET /api/v1/meta`: the version of the service and the sources of its data. Needs no key, is not charged,
//! and may be cached.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_geo::{Atlas, Edition};
use serde::Serialize;

use crate::error::Refusal;
use crate::operation::{API_VERSION, Operation};
use crate::pairing::Pairing;
use crate::response::{cacheable_response, json_line};
use crate::state::Api;
use crate::wall_clock::wall_clock;

#[derive(Serialize)]
struct MetaResponse<'a> {
    version: &'static str,
    interface: &'static str,
    ipv4_url: Option<&'a str>,
    ipv6_url: Option<&'a str>,
    databases: Vec<MetaDatabase<'a>>,
    notices: [&'static str; ipseity_geo::BUILTIN_DATA_NOTICES.len()],
}

#[derive(Serialize)]
struct MetaDatabase<'a> {
    r#type: &'a str,
    kind: &'static str,
    built_at: String,
    age_days: u64,
    attribution: Option<&'static str>,
    attribution_url: Option<&'static str>,
}

pub(crate) async fn meta_handler(State(api): State<Arc<Api>>) -> Response {
    api.finish_response(Operation::Meta.label(), meta_response(&api.renderer.current_atlas(), api.pairing.as_deref()))
}

fn meta_response(atlas: &Atlas, pairing: Option<&Pairing>) -> Result<Response, Refusal> {
    let now_s = wall_clock().as_secs();
    let [ipv4_url, ipv6_url] = pairing.map_or([None; 2], |pairing| pairing.urls().each_ref().map(|url| Some(&**url)));
    let meta = MetaResponse {
        version: env!("CARGO_PKG_VERSION"),
        interface: API_VERSION,
        ipv4_url,
        ipv6_url,
        databases: atlas.editions().iter().map(|edition| describe_database(edition, now_s)).collect(),
        notices: ipseity_geo::BUILTIN_DATA_NOTICES,
    };
    let body = json_line(&meta).map_err(|_| Refusal::Internal)?;
    Ok(cacheable_response(body, "application/json"))
}

fn describe_database(edition: &Edition, now_s: u64) -> MetaDatabase<'_> {
    let attribution = edition.attribution();
    MetaDatabase {
        r#type: &edition.database_type,
        kind: edition.kind.name(),
        built_at: edition.built_at(),
        age_days: edition.age_days(now_s),
        attribution: attribution.map(|attribution| attribution.text),
        attribution_url: attribution.map(|attribution| attribution.url),
    }
}
