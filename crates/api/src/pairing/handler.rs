//! `GET /api/v1/pair`: seals the address of the connection into a token. It uses neither store and is not charged.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use ipseity_domain::{Address, Client};
use serde::Serialize;

use super::{Pairing, token};
use crate::error::Refusal;
use crate::operation::Operation;
use crate::response::{json_line, json_response};
use crate::state::Api;
use crate::wall_clock::wall_clock;

#[derive(Serialize)]
struct PairResponse<'a> {
    token: &'a str,
    family: &'static str,
    expires_in_s: u64,
}

pub(crate) async fn pair_handler(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    let pairing = api.pairing.as_deref().ok_or(Refusal::NotFound);
    let result = pairing.and_then(|pairing| pair_response(pairing, client.address, &headers));
    api.finish_response(Operation::Pair.label(), result)
}

fn pair_response(pairing: &Pairing, address: Address, headers: &HeaderMap) -> Result<Response, Refusal> {
    let now_s = wall_clock().as_secs();
    // Only a trusted proxy can hide the family. The host of a family was checked before.
    let family = address.family().ok_or(Refusal::Misdirected)?;
    pairing.throttle.take(address, now_s).map_err(Refusal::PairLimit)?;
    let (origin, expires_in_s) = (pairing.origin(headers), pairing.token_lifetime_s);
    let token = token::seal(&pairing.sealer, origin, address, expires_in_s, now_s).ok_or(Refusal::Internal)?;
    let body = json_line(&PairResponse { token: &token, family: family.name(), expires_in_s });
    Ok(json_response(body.map_err(|_| Refusal::Internal)?))
}
