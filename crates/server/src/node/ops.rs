//! The ops listener: /live, /ready, /drain, /metrics and /log. It must not be public.
//!
//! It rejects requests of web pages. A page could reach it from a browser in the same network, also under the name of
//! the page (DNS rebinding).

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Form, Router};
use http::header::{CONNECTION, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use ipseity_api::Api;
use ipseity_domain::Client;
use ipseity_edge::{Application, RequestBody};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;
use tower::ServiceExt;

use crate::node::readiness::Readiness;
use crate::telemetry::log::LogControl;

pub(crate) struct OpsState {
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) api: Arc<Api>,
    pub(crate) registry: Registry,
    pub(crate) log_control: Arc<LogControl>,
    /// Host names that requests may use.
    pub(crate) hosts: Vec<String>,
}

pub(crate) fn ops_application(ops: Arc<OpsState>) -> impl Application {
    let router = Router::new()
        .route("/live", get(async || "live\n"))
        .route("/ready", get(get_ready))
        .route("/drain", put(put_drain))
        .route("/metrics", get(get_metrics))
        .route("/log", get(get_log).put(put_log))
        .with_state(Arc::clone(&ops));
    move |_client: Client, request: Request<RequestBody>| {
        let rejection = reject_web_page(&ops.hosts, &request);
        let response = router.clone().oneshot(request.map(Body::new));
        async move {
            let mut response = match rejection {
                Some(rejection) => rejection.into_response(),
                None => response.await.unwrap_or_else(|never| match never {}),
            };
            // Idle connections of probers and scrapers would use up the few that there are.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            response
        }
    }
}

/// The response to a request that a web page may have caused.
fn reject_web_page<B>(hosts: &[String], request: &Request<B>) -> Option<(StatusCode, &'static str)> {
    if request.headers().contains_key(ORIGIN) || is_cross_site(request.headers()) {
        return Some((StatusCode::FORBIDDEN, "The ops listener does not answer requests of web pages.\n"));
    }
    let host_headers = request.headers().get_all(HOST).iter().map(|host| host.as_bytes().try_into().ok());
    let mut authorities = host_headers.chain(request.uri().authority().cloned().map(Some));
    let is_allowed = authorities
        .all(|authority| authority.is_some_and(|authority: Authority| is_allowed_host(hosts, authority.host())));
    let message = "The ops listener answers to IP addresses, localhost and the names in [ops] hosts.\n";
    (!is_allowed).then_some((StatusCode::MISDIRECTED_REQUEST, message))
}

/// A browser sends `none` if a person entered the URL.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get_all("sec-fetch-site").iter().any(|site| site != "none" && site != "same-origin")
}

/// A page can let its name lead to any address, but the browser sends the name.
fn is_allowed_host(hosts: &[String], host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
}

/// Answers from the last probes, so that a store that does not answer does not delay it.
async fn get_ready(State(ops): State<Arc<OpsState>>) -> Response {
    let (readiness, admission) = (&ops.readiness, ops.api.admission());
    let reasons = readiness.reasons();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = json!({
        "ready": reasons.is_empty(),
        "draining": readiness.is_draining(),
        "degraded": admission.is_degraded(),
        "reasons": reasons,
    });
    for (name, error) in readiness.checks() {
        body[name] = error.unwrap_or_else(|| "ok".to_owned()).into();
    }
    (status, [(http::header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainRequest {
    draining: bool,
}

/// Takes the node out of load balancers, or back. It still answers requests.
async fn put_drain(State(ops): State<Arc<OpsState>>, Form(request): Form<DrainRequest>) -> Response {
    tracing::warn!(draining = request.draining, "drain set by hand");
    ops.readiness.set_drained(request.draining);
    get_ready(State(ops)).await
}

async fn get_metrics(State(ops): State<Arc<OpsState>>) -> Response {
    // Refreshed here, so that the gauge includes the latest charges.
    ops.api.admission().report_pending_charges();
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, &ops.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(http::header::CONTENT_TYPE, content_type)], text).into_response()
}

/// The effective log settings; `remaining_s` is null unless an override is active.
async fn get_log(State(ops): State<Arc<OpsState>>) -> Response {
    let status = ops.log_control.status();
    let body = json!({ "level": status.level.to_string(), "access": status.access, "remaining_s": status.remaining_s });
    ([(http::header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogOverrideRequest {
    level: Option<String>,
    access: Option<bool>,
    duration_s: Option<u64>,
}

async fn put_log(State(ops): State<Arc<OpsState>>, Form(request): Form<LogOverrideRequest>) -> Response {
    match ops.log_control.set_override(request.level.as_deref(), request.access, request.duration_s) {
        Ok(()) => get_log(State(ops)).await,
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error:#}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri("/metrics");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("valid request");
        reject_web_page(&["ops.internal.example".to_owned()], &request).map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn ops_listener_rejects_unknown_hosts_and_web_pages() {
        for host in
            ["127.0.0.1:9090", "10.0.0.7", "[::1]:9090", "localhost", "LocalHost:9090", "Ops.internal.example:9090"]
        {
            assert_eq!(status_of(&[("host", host)]), 200, "{host}");
        }
        for host in [
            "rebind.evil.example",
            "rebind.evil.example:9090",
            "127.0.0.1.evil.example",
            "",
            "a b",
            "localhost.evil.example",
        ] {
            assert_eq!(status_of(&[("host", host)]), 421, "{host}");
        }
        assert_eq!(status_of(&[("host", "localhost"), ("host", "rebind.evil.example")]), 421);
        assert_eq!(status_of(&[("host", "localhost"), ("origin", "http://localhost")]), 403);
        assert_eq!(status_of(&[("host", "localhost"), ("origin", "null")]), 403);
        for (site, status) in [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)] {
            assert_eq!(status_of(&[("host", "localhost"), ("sec-fetch-site", site)]), status, "{site}");
        }
        assert_eq!(status_of(&[]), 200, "a probe over HTTP/1.0 sends no Host, which a browser always does");
    }
}
