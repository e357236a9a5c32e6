//! The floor: the minimum cost of a service that authenticates and charges a request with one Redis call.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Client, Script, Value};

use crate::{PATH, success_response};

#[derive(Clone)]
struct FloorState {
    connection: MultiplexedConnection,
    script: Arc<Script>,
    body: Bytes,
}

/// Responds after Redis has charged the key.
pub(crate) async fn router(redis: &str, body: Bytes) -> Result<Router> {
    let connection = Client::open(redis)?.get_multiplexed_async_connection().await?;
    let script = Arc::new(Script::new(include_str!("charge.lua")));
    Ok(Router::new().route(PATH, get(charge)).with_state(FloorState { connection, script, body }))
}

async fn charge(State(mut floor): State<FloorState>, headers: HeaderMap) -> Response {
    let bearer = headers.get(AUTHORIZATION).and_then(|line| line.to_str().ok()?.strip_prefix("Bearer "));
    // The public ID identifies the record. The secret is neither hashed nor checked.
    let Some(id) = bearer.and_then(|key| key.get(4..14)) else { return StatusCode::UNAUTHORIZED.into_response() };
    let (record, log) = (format!("k:{{{id}}}"), format!("k:{{{id}}}:b"));
    match floor.script.key(record).key(log).invoke_async(&mut floor.connection).await {
        Ok(Value::Array(verdict)) if verdict.len() > 3 => success_response(floor.body).into_response(),
        Ok(_refused) => StatusCode::FORBIDDEN.into_response(),
        Err(_outage) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
