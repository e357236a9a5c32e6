//! What every answer of the public listener carries, whoever made it: a page, a lookup, a refusal or a panic.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;
use tracing::field::Empty;

use crate::metrics::{NONE, PAGE};
use crate::refusal::Refusal;
use crate::routes::OPERATIONS;
use crate::{Api, TRACE};

const EXPOSED: HeaderValue = HeaderValue::from_static(
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, Server-Timing",
);

/// The methods that anybody has a use for; what else a stranger calls a method could be anything.
static METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Wraps all public routes: answers for those that there are not or that find nothing and leave it at that, bounds the address and the
/// time of a request, turns a panic into a 500, dresses every answer, and counts and logs it.
pub fn dress(router: Router, api: &Arc<Api>, uri_bytes_max: usize, request_timeout: Duration) -> Router {
    let (lost, misled, panicked, refused) = (Arc::clone(api), Arc::clone(api), Arc::clone(api), Arc::clone(api));
    let router = router
        .fallback(async move || lost.finish("none", Err(Refusal::NotFound)))
        .method_not_allowed_fallback(async move || misled.finish("none", Err(Refusal::MethodNotAllowed)));
    #[cfg(feature = "failpoints")]
    let router = router.layer(from_fn(crate::failpoint::panic));
    router
        .layer(CatchPanicLayer::custom(move |_panic: Box<dyn Any + Send>| {
            // What the panic said stays unsaid: it may hold anything.
            panicked.finish("none", Err(Refusal::Internal))
        }))
        .layer(from_fn(move |request: Request, next: Next| {
            let api = Arc::clone(&refused);
            async move {
                let (start, operation, method) = (Instant::now(), operation_of(&request), method_of(&request));
                let request_id = format!("{:016x}", fastrand::u64(..));
                let span = tracing::info_span!("request", id = request_id);
                let traced = tracing::info_span!(target: TRACE, "request", "otel.kind" = "server", method, operation, status = Empty);
                let answer = answer(request, next, &api, uri_bytes_max, request_timeout);
                let mut response = answer.instrument(span).instrument(traced.clone()).await;
                let took = start.elapsed();
                api.metrics.took(operation, took);
                let (status, took_us) =
                    (response.status().as_u16(), u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                traced.record("status", status);
                // Neither path nor query, which may hold a key; nothing of the client.
                tracing::info!(target: "access", id = request_id, method, operation, status, took_us);
                dress_headers(response.headers_mut(), &request_id);
                // Of pages not: how long a password took is nobody's business.
                if ![PAGE, NONE].contains(&operation) {
                    time_headers(response.headers_mut(), took);
                }
                response
            }
        }))
}

/// What a request is for, in one of a few words.
fn operation_of(request: &Request) -> &'static str {
    let Some(path) = request.extensions().get::<MatchedPath>() else { return NONE };
    let own = OPERATIONS.iter().find(|(own, _)| *own == path.as_str());
    own.map_or(PAGE, |(_, operation)| operation.label())
}

fn method_of(request: &Request) -> &'static str {
    METHODS.iter().find(|known| *known == request.method()).map_or("other", Method::as_str)
}

async fn answer(request: Request, next: Next, api: &Api, uri_bytes_max: usize, request_timeout: Duration) -> Response {
    let uri = request.uri();
    if uri.path().len() + uri.query().map_or(0, str::len) > uri_bytes_max {
        return api.finish("none", Err(Refusal::UriTooLong));
    }
    match tokio::time::timeout(request_timeout, next.run(request)).await {
        Ok(found) if found.status() != StatusCode::NOT_FOUND || found.headers().contains_key(CONTENT_TYPE) => found,
        Ok(_bare) => api.finish("none", Err(Refusal::NotFound)),
        Err(_elapsed) => {
            tracing::error!("a request took longer than [edge] request_timeout_ms");
            api.finish("none", Err(Refusal::Internal))
        }
    }
}

/// Dresses an answer.
pub(crate) fn dress_headers(headers: &mut HeaderMap, request_id: &str) {
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

/// Says how long an answer took.
pub(crate) fn time_headers(headers: &mut HeaderMap, took: Duration) {
    if let Ok(timing) = HeaderValue::from_str(&format!("total;dur={:.3}", took.as_secs_f64() * 1000.0)) {
        headers.insert(HeaderName::from_static("server-timing"), timing);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use geo::{Shelf, Sources};
    use http_body_util::BodyExt;
    use ledger::{Ledger, LedgerOptions};
    use prometheus_client::registry::Registry;
    use serde_json::Value;
    use store::{Store, StoreOptions};
    use tower::ServiceExt;

    use super::*;
    use crate::{ApiBounds, FallbackBounds, Links, Metrics, Tally};

    /// An API whose stores are never reached.
    fn api() -> Arc<Api> {
        let timeout = Duration::from_secs(1);
        let ledger = LedgerOptions { url: "redis://127.0.0.1:1".to_owned(), timeout };
        let store = StoreOptions {
            url: "postgres://127.0.0.1:1/none".to_owned(),
            application_name: "test",
            connections_max: 1,
            timeout,
        };
        let page = || "https://pages.example.com".to_owned();
        Arc::new(Api::new(
            Arc::new(Ledger::new(&ledger).expect("a ledger")),
            Store::new(&store).expect("a store"),
            Arc::new(Shelf::open(Sources::default(), false).expect("an atlas")),
            Links { base: page(), docs: page(), signup: page(), enterprise: page(), dashboard: page() },
            Arc::new(Tally::new(1)),
            Metrics::register(&mut Registry::default()),
            ApiBounds {
                lookups_max: 1,
                unknown_max: 1,
                refused_max: 1,
                fallback: FallbackBounds { keys_max: 1, recall_max: timeout, failures_max: 1, store_timeout: timeout },
            },
        ))
    }

    async fn answer_of(router: Router, request_timeout: Duration) -> (StatusCode, HeaderMap, Value) {
        let request = http::Request::get("/").body(Body::empty()).expect("a request");
        let answer = dress(router, &api(), 100, request_timeout).oneshot(request).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        (head.status, head.headers, serde_json::from_slice(&body).expect("JSON"))
    }

    fn assert_internal((status, headers, body): (StatusCode, HeaderMap, Value)) {
        assert_eq!((status, &body["error"]), (StatusCode::INTERNAL_SERVER_ERROR, &Value::from("internal_error")));
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        assert_eq!(headers[CONTENT_TYPE], "application/json");
        assert!(headers.contains_key("x-request-id") && !body.to_string().contains("secret"));
    }

    #[tokio::test]
    async fn a_panic_is_answered_like_any_other_failure_and_tells_nothing() {
        let panics = get(async || {
            if true {
                panic!("a secret")
            }
        });
        assert_internal(answer_of(Router::new().route("/", panics), Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_route_that_finds_nothing_leaves_the_words_to_us() {
        let bare = get(async || StatusCode::NOT_FOUND);
        let (status, headers, body) = answer_of(Router::new().route("/", bare), Duration::from_secs(5)).await;
        assert_eq!((status, &body["error"]), (StatusCode::NOT_FOUND, &Value::from("not_found")));
        assert_eq!(headers[CONTENT_TYPE], "application/json");
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_is_answered_like_any_other_failure() {
        let hangs = get(std::future::pending::<()>);
        assert_internal(answer_of(Router::new().route("/", hangs), Duration::from_millis(10)).await);
    }
}
