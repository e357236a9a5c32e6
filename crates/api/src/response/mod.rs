//! Building blocks of responses: common headers, the CORS preflight and cacheable bodies.

pub(crate) mod header_value;
pub(crate) mod preflight;
pub(crate) mod rate_limit_headers;

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONTENT_TYPE, Entry, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

use crate::response::header_value::{HeaderValueBuilder, volatile};

const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, Server-Timing, Ipseity-Test, Ipseity-Pair-Unused",
);
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const TIMING_ALLOW_ORIGIN: HeaderName = HeaderName::from_static("timing-allow-origin");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Number of headers of a lookup's response, including those that the HTTP server adds.
const HEADER_CAPACITY: usize = 19;

/// A value as JSON with a newline at the end, which terminals and text tools expect.
pub(crate) fn json_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

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

/// Adds the headers that every public response carries.
pub(crate) fn insert_common_headers(headers: &mut HeaderMap, request_id: &str) {
    // More would move all headers of a response that already has its capacity.
    headers.reserve(HEADER_CAPACITY.saturating_sub(headers.len()));
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A cache must never give one client's address to another client.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        headers.insert(X_REQUEST_ID, volatile(request_id));
    }
}

/// Lets any page load the response and read how long it took, unless the response restricts that, as pages do.
pub(crate) fn insert_cross_origin_headers(headers: &mut HeaderMap) {
    if let Entry::Vacant(policy) = headers.entry(CROSS_ORIGIN_RESOURCE_POLICY) {
        policy.insert(HeaderValue::from_static("cross-origin"));
        headers.insert(TIMING_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
}

/// Adds `Server-Timing` with the duration in milliseconds.
pub(crate) fn insert_server_timing(headers: &mut HeaderMap, elapsed: Duration) {
    let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    let fraction_digits = [us / 100 % 10, us / 10 % 10, us % 10];
    let mut timing = HeaderValueBuilder::new();
    timing.push_str("total;dur=").push_u64(us / 1000).push_str(".");
    fraction_digits.into_iter().fold(&mut timing, HeaderValueBuilder::push_u64).insert_volatile(headers, SERVER_TIMING);
}
