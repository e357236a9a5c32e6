//! The ops listener: /live, /ready, /metrics and /log. It must not be public.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Form, Router};
use http::Request;
use ipseity_api::Api;
use ipseity_domain::Client;
use ipseity_edge::{Application, RequestBody};
use ipseity_keys::DeploymentGuard;
use ipseity_ledger::Ledger;
use ipseity_store::Store;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;
use tower::ServiceExt;

use crate::telemetry::log::LogControl;

pub(crate) struct OpsState {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) api: Arc<Api>,
    pub(crate) guard: Arc<DeploymentGuard>,
    pub(crate) registry: Registry,
    pub(crate) draining: AtomicBool,
    pub(crate) log_control: Arc<LogControl>,
}

pub(crate) fn ops_application(ops: Arc<OpsState>) -> impl Application {
    let router = Router::new()
        .route("/live", get(async || "live\n"))
        .route("/ready", get(get_ready))
        .route("/metrics", get(get_metrics))
        .route("/log", get(get_log).put(put_log))
        .with_state(ops);
    move |_client: Client, request: Request<RequestBody>| {
        let response = router.clone().oneshot(request.map(Body::new));
        async {
            let Ok(response) = response.await;
            response
        }
    }
}

/// A node is ready unless it drains or can serve no key. In degraded mode it serves keys that it knows, even without Redis and PostgreSQL.
async fn get_ready(State(ops): State<Arc<OpsState>>) -> Response {
    let draining = ops.draining.load(Ordering::Acquire);
    let (store, ledger) = tokio::join!(ops.store.check(), ops.ledger.ping());
    let mismatch = Some(ops.guard.status()).filter(|status| status.is_mismatch());
    let ok_or_error = |outcome: Option<String>| outcome.unwrap_or_else(|| "ok".to_owned());
    let ready = !draining && (store.is_ok() && ledger.is_ok() || ops.api.admission().can_serve_degraded());
    let body = json!({
        "ready": ready,
        "draining": draining,
        "degraded": ops.api.admission().is_degraded(),
        "store": ok_or_error(store.err().map(|error| error.to_string())),
        "ledger": ok_or_error(ledger.err().map(|error| error.to_string()).or(mismatch.map(|status| status.to_string()))),
    });
    let status = if ready { http::StatusCode::OK } else { http::StatusCode::SERVICE_UNAVAILABLE };
    (status, [(http::header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

async fn get_metrics(State(ops): State<Arc<OpsState>>) -> Response {
    // Refreshed here, so that the gauge includes the latest charges.
    ops.api.admission().report_pending_charges();
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, &ops.registry).is_err() {
        return http::StatusCode::INTERNAL_SERVER_ERROR.into_response();
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
        Err(error) => (http::StatusCode::BAD_REQUEST, format!("{error:#}\n")).into_response(),
    }
}
