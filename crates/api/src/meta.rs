//! GET /api/v1/meta: what this service is and where its data comes from. No key, no charge, for anyone to cache.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use geo::Edition;
use http::{HeaderValue, header};
use serde::Serialize;

use crate::Api;
use crate::operation::Operation;
use crate::refusal::Refusal;

/// The version of the interface that the documentation describes.
pub(crate) const INTERFACE: &str = "1.1.0";

#[derive(Serialize)]
struct Meta<'a> {
    version: &'static str,
    interface: &'static str,
    databases: Vec<Database<'a>>,
    notices: [&'static str; geo::NOTICES.len()],
}

#[derive(Serialize)]
struct Database<'a> {
    r#type: &'a str,
    kind: &'static str,
    built_at: String,
    age_days: u64,
    attribution: Option<&'static str>,
    attribution_url: Option<&'static str>,
}

pub(crate) async fn meta(State(api): State<Arc<Api>>) -> Response {
    api.finish(Operation::Meta.label(), api.describe())
}

impl Api {
    fn describe(&self) -> Result<Response, Refusal> {
        let atlas = self.shelf.current();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let meta = Meta {
            version: env!("CARGO_PKG_VERSION"),
            interface: INTERFACE,
            databases: atlas.editions().iter().map(|edition| described(edition, now_s)).collect(),
            notices: geo::NOTICES,
        };
        let body = serde_json::to_vec(&meta).map_err(|_| Refusal::Internal)?;
        Ok(meta_file(body))
    }
}

/// A body with the headers of this answer.
pub(crate) fn meta_file(body: Vec<u8>) -> Response {
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let cacheable = (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    ([json, cacheable], body).into_response()
}

fn described(edition: &Edition, now_s: u64) -> Database<'_> {
    let attribution = edition.attribution();
    Database {
        r#type: &edition.database_type,
        kind: edition.kind.name(),
        built_at: edition.built_at(),
        age_days: edition.age_days(now_s),
        attribution: attribution.map(|attribution| attribution.text),
        attribution_url: attribution.map(|attribution| attribution.url),
    }
}
