//! The outer HTTP service of the public listener. It wraps lookups, pages, refusals and panics alike.

mod fast_path;
pub(crate) mod metrics;
pub(crate) mod request_id;
mod request_path;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE, STRICT_TRANSPORT_SECURITY};
use http::{HeaderValue, Method, Request, StatusCode};
use ipseity_domain::{Client, RequestError};
use tower::{BoxError, ServiceExt};
use tracing::Instrument;
use tracing::field::Empty;

use crate::error::Refusal;
use crate::lookup::lookup;
use crate::lookup::test_key::is_test_response;
use crate::operation::Operation;
use crate::response::preflight::preflight_response;
use crate::response::{insert_common_headers, insert_cross_origin_headers, insert_server_timing};
use crate::service::metrics::{MANAGE_LABEL, NO_OPERATION_LABEL, PAGE_LABEL, TEST_LABEL};
use crate::service::request_id::RequestId;
use crate::state::Api;
use crate::trace::TRACE_TARGET;

/// Methods that appear in logs and traces. Others are logged as `other`, because a client can put any text there.
static LABELED_METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The start of the paths of the management API, whose operations are not part of this crate.
const MANAGE_PATH: &str = "/api/v1/manage/";

/// Half a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=15552000");

/// Wraps all public routes:
///
/// - handles CORS preflights, unmatched routes, disallowed methods and 404s without a body. For unmatched routes, browsers
///   get what `not_found_pages` responds,
/// - refuses clients in blocked networks,
/// - limits the length of the URL and the duration of a request,
/// - turns a panic into a 500,
/// - adds the common headers, and counts and logs every request.
pub fn public_service(
    router: Router,
    not_found_pages: Option<Router>,
    api: &Arc<Api>,
    uri_bytes_max: usize,
    request_timeout: Duration,
) -> PublicService {
    let (not_found_api, method_not_allowed_api) = (Arc::clone(api), Arc::clone(api));
    let router = router
        .fallback(async move |request: Request<Body>| match not_found_pages.filter(|_| is_navigation(&request)) {
            Some(pages) => pages.oneshot(request).await.into_response(),
            None => mark_unmatched(not_found_api.finish_response(NO_OPERATION_LABEL, Err(Refusal::NotFound))),
        })
        .method_not_allowed_fallback(async move || {
            method_not_allowed_api.finish_response(NO_OPERATION_LABEL, Err(Refusal::MethodNotAllowed))
        });
    PublicService(Arc::new(PublicServiceInner { router, api: Arc::clone(api), uri_bytes_max, request_timeout }))
}

/// Whether a browser requests a page, and not a program the API.
fn is_navigation(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    let accept = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accept.flat_map(|value| value.split(','));
    matches!(*request.method(), Method::GET | Method::HEAD)
        && path != "/api"
        && !path.starts_with("/api/")
        && types.any(|accepted| accepted.split(';').next().is_some_and(|kind| kind.trim() == "text/html"))
}

/// Marks the response to a request that matches no route.
#[derive(Clone, Copy)]
struct Unmatched;

fn mark_unmatched(mut response: Response) -> Response {
    response.extensions_mut().insert(Unmatched);
    response
}

/// The outer HTTP service. See [`public_service`].
#[derive(Clone)]
pub struct PublicService(Arc<PublicServiceInner>);

struct PublicServiceInner {
    router: Router,
    api: Arc<Api>,
    uri_bytes_max: usize,
    request_timeout: Duration,
}

impl PublicService {
    /// Handles a request of a client.
    pub fn call<B>(&self, client: Client, request: Request<B>) -> impl Future<Output = Response> + Send + use<B>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        // Boxed once here, so that the callers move a pointer instead of the whole future.
        Box::pin(Arc::clone(&self.0).handle(client, request))
    }

    /// Responds to a request that was refused before it got here.
    #[must_use]
    pub fn refuse(&self, error: RequestError) -> http::Response<Bytes> {
        let (api, refusal, id) = (&self.0.api, Refusal::BadRequest(error), RequestId::generate());
        let (mut head, _body) = api.finish_response(NO_OPERATION_LABEL, Err(refusal)).into_parts();
        tracing::info!(target: "access", request_id = id.as_str(), operation = NO_OPERATION_LABEL, status = head.status.as_u16());
        insert_common_headers(&mut head.headers, id.as_str());
        http::Response::from_parts(head, api.error_bodies.body(refusal))
    }
}

impl PublicServiceInner {
    async fn handle<B>(self: Arc<Self>, client: Client, mut request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let (start, method) = (Instant::now(), method_label(request.method()));
        request_path::decode_unreserved(request.uri_mut());
        let matched = Operation::at_path(request.uri().path());
        let is_management = request.uri().path().starts_with(MANAGE_PATH);
        let id = RequestId::generate();
        let span = tracing::info_span!(target: TRACE_TARGET, "request", "otel.kind" = "server", method, operation = Empty, status = Empty);
        let dispatched = pin!(self.dispatch(client, request, matched));
        let mut response = id.scope(self.run_guarded(dispatched, matched).instrument(span.clone())).await;
        let elapsed = start.elapsed();
        let operation = match matched {
            Some(_) if is_test_response(&response) => TEST_LABEL,
            Some(operation) => operation.label(),
            None if response.extensions().get::<Unmatched>().is_some() => NO_OPERATION_LABEL,
            None if is_management => MANAGE_LABEL,
            None => PAGE_LABEL,
        };
        self.api.metrics.observe_request_duration(operation, elapsed);
        let (status, duration_us) =
            (response.status().as_u16(), u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
        if !span.is_disabled() {
            span.record("operation", operation).record("status", status);
        }
        // Never the path, the query or anything about the client: the query may contain a key.
        tracing::info!(target: "access", request_id = id.as_str(), method, operation, status, duration_us);
        insert_common_headers(response.headers_mut(), id.as_str());
        // Not over plain HTTP (RFC 6797, section 7.2). Behind a proxy that does not report the scheme, browsers ignore it
        // where it does not belong.
        if self.api.has_https_url && client.connection.is_encrypted != Some(false) {
            response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, HSTS);
        }
        insert_cross_origin_headers(response.headers_mut());
        // Not on pages: the duration of a sign-in could reveal something about the password.
        if matched.is_some() || is_management {
            insert_server_timing(response.headers_mut(), elapsed);
        }
        response
    }

    /// Runs a request until the timeout. A panic, a timeout or a 404 without a body becomes an error response.
    async fn run_guarded(
        &self,
        request: impl Future<Output = Response> + Unpin,
        matched: Option<Operation>,
    ) -> Response {
        let mut request = AssertUnwindSafe(request).catch_unwind();
        let early = if fast_path::starts_without_timer(matched) {
            fast_path::ready_after_one_wake(&mut request).await
        } else {
            None
        };
        let result = match early {
            Some(result) => Ok(result),
            None => Box::pin(tokio::time::timeout(self.request_timeout, request)).await,
        };
        match result {
            Ok(Ok(response))
                if response.status() != StatusCode::NOT_FOUND || response.headers().contains_key(CONTENT_TYPE) =>
            {
                response
            }
            Ok(Ok(_without_body)) => self.refusal_response(Refusal::NotFound),
            // The panic message is dropped, because it may contain a key or an address.
            Ok(Err(_panic)) => self.refusal_response(Refusal::Internal),
            Err(_elapsed) => {
                tracing::error!("request exceeded [edge] request_timeout_ms");
                self.refusal_response(Refusal::Internal)
            }
        }
    }

    /// Runs the handler of a request.
    async fn dispatch<B>(&self, client: Client, mut request: Request<B>, matched: Option<Operation>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        #[cfg(feature = "failpoints")]
        crate::failpoint::panic_if_armed(&request);
        let is_preflight = request.method() == Method::OPTIONS;
        // Preflights are answered, so that a script can read the refusal of its request.
        let blocked_networks = self.api.blocked_networks.as_ref().filter(|_| !is_preflight);
        if blocked_networks.is_some_and(|blocked| blocked.contains(client.address)) {
            self.api.metrics.count_blocked();
            return mark_unmatched(self.refusal_response(Refusal::NetworkBlocked));
        }
        let uri = request.uri();
        if uri.path().len() + uri.query().map_or(0, str::len) > self.uri_bytes_max {
            return mark_unmatched(self.refusal_response(Refusal::UriTooLong));
        }
        let pairing = self.api.pairing.as_ref().filter(|_| !is_preflight);
        if pairing.is_some_and(|pairing| pairing.is_misdirected(&client, &request)) {
            return mark_unmatched(self.refusal_response(Refusal::Misdirected));
        }
        if fast_path::skips_router(matched, request.method()) {
            return lookup(&self.api, &client, &request.into_parts().0).await;
        }
        if is_preflight {
            // Not routed: after a preflight on a mistyped path, a script can read the 404 of its request.
            return mark_unmatched(preflight_response(request.headers()));
        }
        request.extensions_mut().insert(client);
        let mut response = match Box::pin(self.router.clone().oneshot(request.map(Body::new))).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if let Some(allow) = response.headers_mut().get_mut(ALLOW)
            && let Ok(with_options) = HeaderValue::from_bytes(&[allow.as_bytes(), b",OPTIONS"].concat())
        {
            *allow = with_options;
        }
        response
    }

    fn refusal_response(&self, refusal: Refusal) -> Response {
        self.api.finish_response(NO_OPERATION_LABEL, Err(refusal))
    }
}

fn method_label(method: &Method) -> &'static str {
    LABELED_METHODS.iter().find(|candidate| *candidate == method).map_or("other", Method::as_str)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::routing::get;
    use http::HeaderMap;
    use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL};
    use http_body_util::BodyExt;
    use ipseity_domain::{Address, ConnectionFacts};
    use ipseity_geo::{AtlasReloader, AtlasSources};
    use prometheus_client::registry::Registry;
    use serde_json::Value;

    use super::*;
    use crate::admission::Admission;
    use crate::error::ErrorBodies;
    use crate::key_status::reader::KeyStatusReader;
    use crate::limits::MinuteLimits;
    use crate::lookup::renderer::Renderer;
    use crate::openapi::document::OpenApiDocuments;
    use crate::public_urls::PublicUrls;
    use crate::service::metrics::ApiMetrics;

    /// An API whose Redis and PostgreSQL do not exist.
    fn unreachable_api() -> Arc<Api> {
        let url = || "https://pages.example.com".to_owned();
        let urls = PublicUrls { base: url(), docs: url(), signup: url(), enterprise: url(), dashboard: url() };
        let atlas = AtlasReloader::open(AtlasSources::default(), false).expect("atlas without databases");
        let metrics = ApiMetrics::register(&mut Registry::default());
        Arc::new(Api {
            admission: Arc::new(Admission::unreachable(metrics.clone())),
            renderer: Renderer::new(Arc::new(atlas), 1),
            key_status_reader: KeyStatusReader::new(MinuteLimits::for_test()),
            openapi_documents: OpenApiDocuments::new(&Value::Null),
            error_bodies: ErrorBodies::new(urls),
            metrics,
            has_https_url: true,
            require_https: true,
            accept_test_keys: true,
            pairing: None,
            tickets: None,
            blocked_networks: None,
        })
    }

    async fn send_request(router: Router, request_timeout: Duration) -> (StatusCode, HeaderMap, Value) {
        let request = Request::get("/").body(Body::empty()).expect("valid request");
        let client =
            Client { address: Address::new(Ipv4Addr::LOCALHOST.into()), connection: ConnectionFacts::default() };
        let response =
            public_service(router, None, &unreachable_api(), 100, request_timeout).call(client, request).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("complete body").to_bytes();
        (head.status, head.headers, serde_json::from_slice(&body).expect("valid JSON"))
    }

    fn assert_internal_error((status, headers, body): (StatusCode, HeaderMap, Value)) {
        assert_eq!((status, &body["error"]), (StatusCode::INTERNAL_SERVER_ERROR, &Value::from("internal_error")));
        assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert_eq!(headers[CACHE_CONTROL], "no-store");
        assert_eq!(headers[CONTENT_TYPE], "application/json");
        assert!(headers.contains_key("x-request-id") && !body.to_string().contains("secret"));
    }

    #[tokio::test]
    async fn panic_returns_500_without_its_message() {
        let panics = get(async || {
            if true {
                panic!("a secret")
            }
        });
        assert_internal_error(send_request(Router::new().route("/", panics), Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn bodiless_404_gets_the_standard_error_body() {
        let without_body = get(async || StatusCode::NOT_FOUND);
        let (status, headers, body) =
            send_request(Router::new().route("/", without_body), Duration::from_secs(5)).await;
        assert_eq!((status, &body["error"]), (StatusCode::NOT_FOUND, &Value::from("not_found")));
        assert_eq!(headers[CONTENT_TYPE], "application/json");
    }

    #[tokio::test]
    async fn request_timeout_returns_500() {
        let hangs = get(std::future::pending::<()>);
        assert_internal_error(send_request(Router::new().route("/", hangs), Duration::from_millis(10)).await);
    }
}
