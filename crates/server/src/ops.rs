//! The private listener: live, ready, metrics. Nothing here is for the world.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::Api;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ledger::Ledger;
use prometheus_client::registry::Registry;
use serde_json::json;
use store::Store;

pub(crate) struct Ops {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) api: Arc<Api>,
    pub(crate) registry: Registry,
    pub(crate) draining: AtomicBool,
}

pub(crate) fn router(ops: Arc<Ops>) -> Router {
    Router::new()
        .route("/live", get(async || "live\n"))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(ops)
}

/// Ready unless the node is draining or could answer nobody: known keys are answered while one store is away, and while both are.
async fn ready(State(ops): State<Arc<Ops>>) -> Response {
    let draining = ops.draining.load(Ordering::Acquire);
    let (store, ledger) = tokio::join!(ops.store.check(), ops.ledger.check());
    let told = |outcome: Option<String>| outcome.unwrap_or_else(|| "ok".to_owned());
    let ready = !draining && (store.is_ok() && ledger.is_ok() || ops.api.can_recall());
    let report = json!({
        "ready": ready,
        "draining": draining,
        "verdicts": if ops.api.is_recalling() { "memory" } else { "ledger" },
        "store": told(store.err().map(|error| error.to_string())),
        "ledger": told(ledger.err().map(|error| error.to_string())),
    });
    let status = if ready { http::StatusCode::OK } else { http::StatusCode::SERVICE_UNAVAILABLE };
    (status, [(http::header::CONTENT_TYPE, "application/json")], format!("{report}\n")).into_response()
}

async fn metrics(State(ops): State<Arc<Ops>>) -> Response {
    // Counted now: what was noted a moment ago must not look as if it were settled.
    ops.api.count_unsettled();
    let mut text = String::new();
    if prometheus_client::encoding::text::encode(&mut text, &ops.registry).is_err() {
        return http::StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(http::header::CONTENT_TYPE, kind)], text).into_response()
}
