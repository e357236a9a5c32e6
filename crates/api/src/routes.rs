//! The route table.

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE};

use crate::Api;
use crate::lookup::demo::demo_handler;
use crate::lookup::lookup_handler;
use crate::meta::meta_handler;
use crate::openapi;
use crate::operation::Operation;

macro_rules! routes {
    ($($path:literal $operation:ident $handler:path;)+) => {
        /// Every address of the interface and its operation; each answers GET, HEAD and OPTIONS.
        pub(crate) const ROUTES: &[(&str, Operation)] = &[$(($path, Operation::$operation)),+];

        /// The operations.
        pub fn router(api: Arc<Api>) -> Router {
            Router::new()$(.route($path, get($handler).options(async || preflight_response())))+.with_state(api)
        }
    };
}

routes! {
    "/api/v1/ip"           Lookup      lookup_handler;
    "/api/v1/ip/demo"      Demo        demo_handler;
    "/api/v1/meta"         Meta        meta_handler;
    "/api/v1/openapi.json" OpenapiJson openapi::openapi_json_handler;
    "/api/v1/openapi.yaml" OpenapiYaml openapi::openapi_yaml_handler;
}

/// A stray Content-Type must not break a browser's call, so it is allowed.
pub(crate) fn preflight_response() -> Response {
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type"),
        (ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
