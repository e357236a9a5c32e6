//! GET /api/v1/meta: what this service is and where its data comes from. No key, no charge, for anyone to cache.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use ipseity_geo::Edition;
use serde::Serialize;

use crate::Api;
use crate::error::Refusal;
use crate::operation::Operation;

/// The version of the interface that the documentation describes.
pub(crate) const API_VERSION: &str = "1.1.0";

#[derive(Serialize)]
struct MetaResponse<'a> {
    version: &'static str,
    interface: &'static str,
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
    api.finish_response(Operation::Meta.label(), api.meta_response())
}

impl Api {
    fn meta_response(&self) -> Result<Response, Refusal> {
        let atlas = self.atlas.current();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let meta = MetaResponse {
            version: env!("CARGO_PKG_VERSION"),
            interface: API_VERSION,
            databases: atlas.editions().iter().map(|edition| describe_database(edition, now_s)).collect(),
            notices: ipseity_geo::BUILTIN_DATA_NOTICES,
        };
        let body = serde_json::to_vec(&meta).map_err(|_| Refusal::Internal)?;
        Ok(cacheable_json(body))
    }
}

/// A body with the headers of this answer.
pub(crate) fn cacheable_json(body: Vec<u8>) -> Response {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let cacheable = (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    ([json, cacheable], body).into_response()
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
