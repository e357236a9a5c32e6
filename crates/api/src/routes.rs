//! The route table.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE};

use crate::Api;
use crate::demo::demo;
use crate::lookup::lookup;
use crate::meta::meta;
use crate::openapi::openapi;

/// The operations.
pub fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/api/v1/ip", get(lookup).options(preflight))
        .route("/api/v1/ip/demo", get(demo).options(preflight))
        .route("/api/v1/meta", get(meta).options(preflight))
        .route("/api/v1/openapi.json", get(openapi).options(preflight))
        .with_state(api)
}

/// A stray Content-Type must not break a browser's call, so it is allowed.
async fn preflight() -> Response {
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type"),
        (ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
