//! Building blocks of responses: common headers, the CORS preflight and cacheable bodies.

pub(crate) mod header_value;
pub(crate) mod rate_limit_headers;

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::response::header_value::HeaderValueBuilder;

const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, Server-Timing",
);
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Number of headers of a lookup's response, including those that the HTTP server adds.
const HEADER_CAPACITY: usize = 16;

/// A JSON response with capacity for all the headers that follow.
pub(crate) fn json_response(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.reserve(HEADER_CAPACITY);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A response that is the same for every caller and may be cached for five minutes.
pub(crate) fn cacheable_response(body: impl Into<Body>, content_type: &'static str) -> Response {
    let content_type = (CONTENT_TYPE, HeaderValue::from_static(content_type));
    let cacheable = (CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    ([content_type, cacheable], body.into()).into_response()
}

/// The response to a CORS preflight. It allows Content-Type, because some browser clients set it on a GET.
pub(crate) fn preflight_response() -> Response {
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, OPTIONS"),
        (ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type"),
        (ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Adds the headers that every public response carries.
pub(crate) fn insert_common_headers(headers: &mut HeaderMap, request_id: &str) {
    headers.reserve(HEADER_CAPACITY);
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A cache must never give one client's address to another client.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        headers.insert(X_REQUEST_ID, request_id);
    }
}

/// Adds `Server-Timing` with the duration in milliseconds.
pub(crate) fn insert_server_timing(headers: &mut HeaderMap, elapsed: Duration) {
    let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let fraction_digits = [us / 100 % 10, us / 10 % 10, us % 10];
    let milliseconds = HeaderValueBuilder::new().push_str("total;dur=").push_u64(us / 1000).push_str(".");
    fraction_digits.into_iter().fold(milliseconds, HeaderValueBuilder::push_u64).insert_into(headers, SERVER_TIMING);
}
