//! What every answer of the public listener carries, whoever made it: a page, a lookup, a refusal or a panic.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use domain::Client;
use futures_util::FutureExt;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use tower::{BoxError, ServiceExt};
use tracing::Instrument;
use tracing::field::Empty;

use crate::header_text::HeaderText;
use crate::lookup::lookup;
use crate::metrics::{NONE, PAGE};
use crate::operation::Operation;
use crate::refusal::Refusal;
use crate::request::RequestId;
use crate::routes::OPERATIONS;
use crate::{Api, TRACE};

const EXPOSED: HeaderValue = HeaderValue::from_static(
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, RateLimit, RateLimit-Policy, Retry-After, X-Request-Id, Server-Timing",
);
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Headers of an answer to a lookup, those of the protocol included.
pub(crate) const HEADERS: usize = 16;

/// The methods that anybody has a use for; what else a stranger calls a method could be anything.
static METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Wraps all public routes: answers for those that there are not or that find nothing and leave it at that, bounds the address and the
/// time of a request, turns a panic into a 500, dresses every answer, and counts and logs it.
pub fn dress(router: Router, api: &Arc<Api>, uri_bytes_max: usize, request_timeout: Duration) -> Front {
    let (lost, misled) = (Arc::clone(api), Arc::clone(api));
    let router = router
        .fallback(async move || nowhere(lost.finish(NONE, Err(Refusal::NotFound))))
        .method_not_allowed_fallback(async move || misled.finish(NONE, Err(Refusal::MethodNotAllowed)));
    Front(Arc::new(House { router, api: Arc::clone(api), uri_bytes_max, request_timeout }))
}

/// Marks the answer to a request that leads nowhere.
#[derive(Clone, Copy)]
struct Nowhere;

fn nowhere(mut answer: Response) -> Response {
    answer.extensions_mut().insert(Nowhere);
    answer
}

/// All public routes, dressed.
#[derive(Clone)]
pub struct Front(Arc<House>);

struct House {
    router: Router,
    api: Arc<Api>,
    uri_bytes_max: usize,
    request_timeout: Duration,
}

impl Front {
    /// Answers a client's request.
    pub fn answer<B>(&self, client: Client, request: Request<B>) -> impl Future<Output = Response> + Send + use<B>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        // In memory of its own: whoever calls it moves a pointer, not the whole.
        Box::pin(Arc::clone(&self.0).receive(client, request))
    }
}

impl House {
    async fn receive<B>(self: Arc<Self>, client: Client, request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (start, method) = (Instant::now(), method_of(request.method()));
        let own = OPERATIONS.iter().find(|(path, _)| *path == request.uri().path()).map(|(_, operation)| *operation);
        let id = RequestId::draw();
        let traced = tracing::info_span!(target: TRACE, "request", "otel.kind" = "server", method, operation = Empty, status = Empty);
        let answer = pin!(self.answer(client, request, own));
        let mut response = id.cover(self.bounded(answer, own).instrument(traced.clone())).await;
        let took = start.elapsed();
        let operation = match own {
            Some(operation) => operation.label(),
            None if response.extensions().get::<Nowhere>().is_some() => NONE,
            None => PAGE,
        };
        self.api.metrics.took(operation, took);
        let (status, took_us) = (response.status().as_u16(), u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        if !traced.is_disabled() {
            traced.record("operation", operation).record("status", status);
        }
        // Neither path nor query, which may hold a key; nothing of the client.
        tracing::info!(target: "access", id = id.as_str(), method, operation, status, took_us);
        dress_headers(response.headers_mut(), id.as_str());
        // Of pages not: how long a password took is nobody's business.
        if own.is_some() {
            time_headers(response.headers_mut(), took);
        }
        response
    }

    /// Waits for an answer, as long as may be, and makes one where there is none.
    async fn bounded(&self, answer: impl Future<Output = Response> + Unpin, own: Option<Operation>) -> Response {
        let mut answer = AssertUnwindSafe(answer).catch_unwind();
        // A lookup waits once, for a verdict, and the ledger bounds that: only one that waits on is worth a timer.
        let soon = if own == Some(Operation::Lookup) { after_one_wait(&mut answer).await } else { None };
        let answered = match soon {
            Some(answered) => Ok(answered),
            None => Box::pin(tokio::time::timeout(self.request_timeout, answer)).await,
        };
        match answered {
            Ok(Ok(found)) if found.status() != StatusCode::NOT_FOUND || found.headers().contains_key(CONTENT_TYPE) => {
                found
            }
            Ok(Ok(_bare)) => self.refuse(Refusal::NotFound),
            // What the panic said stays unsaid: it may hold anything.
            Ok(Err(_panic)) => self.refuse(Refusal::Internal),
            Err(_elapsed) => {
                tracing::error!("a request took longer than [edge] request_timeout_ms");
                self.refuse(Refusal::Internal)
            }
        }
    }

    /// Lookups take no way round: they are nearly all that is asked.
    async fn answer<B>(&self, client: Client, mut request: Request<B>, own: Option<Operation>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        #[cfg(feature = "failpoints")]
        crate::failpoint::panic(&request);
        let uri = request.uri();
        if uri.path().len() + uri.query().map_or(0, str::len) > self.uri_bytes_max {
            return nowhere(self.refuse(Refusal::UriTooLong));
        }
        if own == Some(Operation::Lookup) && request.method() == Method::GET {
            return lookup(&self.api, &client, &request.into_parts().0).await;
        }
        request.extensions_mut().insert(client);
        match Box::pin(self.router.clone().oneshot(request.map(Body::new))).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn refuse(&self, refusal: Refusal) -> Response {
        self.api.finish(NONE, Err(refusal))
    }
}

/// What a future gives without having to wait a second time.
async fn after_one_wait<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut has_waited = false;
    poll_fn(|context| match future.poll_unpin(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if has_waited => Poll::Ready(None),
        Poll::Pending => {
            has_waited = true;
            Poll::Pending
        }
    })
    .await
}

fn method_of(method: &Method) -> &'static str {
    METHODS.iter().find(|known| *known == method).map_or("other", Method::as_str)
}

/// Dresses an answer.
pub(crate) fn dress_headers(headers: &mut HeaderMap, request_id: &str) {
    headers.reserve(HEADERS);
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // Nobody ever gets another's address from a cache.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        headers.insert(X_REQUEST_ID, request_id);
    }
}

/// Says how long an answer took.
pub(crate) fn time_headers(headers: &mut HeaderMap, took: Duration) {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let thousandths = [us / 100 % 10, us / 10 % 10, us % 10];
    let whole = HeaderText::new().text("total;dur=").number(us / 1000).text(".");
    thousandths.into_iter().fold(whole, HeaderText::number).insert(headers, SERVER_TIMING);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::body::Body;
    use axum::routing::get;
    use domain::{Address, Connection};
    use geo::{Shelf, Sources};
    use http_body_util::BodyExt;
    use ledger::{Ledger, LedgerOptions};
    use prometheus_client::registry::Registry;
    use serde_json::Value;
    use store::{Store, StoreOptions};

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
                told_max: 1,
                fallback: FallbackBounds { keys_max: 1, recall_max: timeout, failures_max: 1, store_timeout: timeout },
            },
        ))
    }

    async fn answer_of(router: Router, request_timeout: Duration) -> (StatusCode, HeaderMap, Value) {
        let request = Request::get("/").body(Body::empty()).expect("a request");
        let client = Client { address: Address::new(Ipv4Addr::LOCALHOST.into()), connection: Connection::default() };
        let answer = dress(router, &api(), 100, request_timeout).answer(client, request).await;
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
