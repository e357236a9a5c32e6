//! What every answer of the public listener carries, whoever made it: a page, a lookup, a refusal or a panic.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;

use crate::Api;
use crate::refusal::Refusal;

const EXPOSED: HeaderValue = HeaderValue::from_static(
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id",
);

/// Wraps all public routes: answers for those that there are not, bounds the address and the time of a request, turns a panic into a 500, and
/// dresses every answer.
#[must_use]
pub fn dress(router: Router, api: &Arc<Api>, uri_bytes_max: usize, request_timeout: Duration) -> Router {
    let (lost, misled, panicked, refused) = (Arc::clone(api), Arc::clone(api), Arc::clone(api), Arc::clone(api));
    router
        .fallback(async move || lost.finish("none", Err(Refusal::NotFound)))
        .method_not_allowed_fallback(async move || misled.finish("none", Err(Refusal::MethodNotAllowed)))
        .layer(CatchPanicLayer::custom(move |_panic: Box<dyn Any + Send>| {
            // What the panic said stays unsaid: it may hold anything.
            panicked.finish("none", Err(Refusal::Internal))
        }))
        .layer(from_fn(move |request: Request, next: Next| {
            let api = Arc::clone(&refused);
            async move {
                let request_id = format!("{:016x}", fastrand::u64(..));
                let span = tracing::info_span!("request", id = request_id);
                let answer = answer(request, next, &api, uri_bytes_max, request_timeout);
                let mut response = answer.instrument(span).await;
                dress_headers(response.headers_mut(), &request_id);
                response
            }
        }))
}

async fn answer(request: Request, next: Next, api: &Api, uri_bytes_max: usize, request_timeout: Duration) -> Response {
    let uri = request.uri();
    if uri.path().len() + uri.query().map_or(0, str::len) > uri_bytes_max {
        return api.finish("none", Err(Refusal::UriTooLong));
    }
    match tokio::time::timeout(request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => {
            tracing::error!("a request took longer than [edge] request_timeout_ms");
            api.finish("none", Err(Refusal::Internal))
        }
    }
}

fn dress_headers(headers: &mut HeaderMap, request_id: &str) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // Nobody ever gets another's address from a cache.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        headers.insert(HeaderName::from_static("x-request-id"), request_id);
    }
}
