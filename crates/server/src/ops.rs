//! The private listener: live, ready, metrics, log. Nothing here is for the world.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::Api;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Form, Router};
use domain::Client;
use edge::{Application, RequestBody};
use http::Request;
use ledger::Ledger;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;
use store::Store;
use tower::ServiceExt;

use crate::telemetry::Levels;

pub(crate) struct Ops {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) api: Arc<Api>,
    pub(crate) registry: Registry,
    pub(crate) draining: AtomicBool,
    pub(crate) levels: Arc<Levels>,
}

pub(crate) fn application(ops: Arc<Ops>) -> impl Application {
    let router = Router::new()
        .route("/live", get(async || "live\n"))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/log", get(log).put(set_log))
        .with_state(ops);
    move |_client: Client, request: Request<RequestBody>| {
        let answer = router.clone().oneshot(request.map(Body::new));
        async {
            let Ok(answer) = answer.await;
            answer
        }
    }
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

/// What is logged now; and for how long, if that is not what the settings say.
async fn log(State(ops): State<Arc<Ops>>) -> Response {
    let now = ops.levels.now();
    let report = json!({ "level": now.level.to_string(), "access": now.access, "for_s": now.for_s });
    ([(http::header::CONTENT_TYPE, "application/json")], format!("{report}\n")).into_response()
}

/// What an operator may ask for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    level: Option<String>,
    access: Option<bool>,
    for_s: Option<u64>,
}

async fn set_log(State(ops): State<Arc<Ops>>, Form(wish): Form<Wish>) -> Response {
    match ops.levels.set(wish.level.as_deref(), wish.access, wish.for_s) {
        Ok(()) => log(State(ops)).await,
        Err(error) => (http::StatusCode::BAD_REQUEST, format!("{error:#}\n")).into_response(),
    }
}
