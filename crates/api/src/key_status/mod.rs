//! `GET /api/v1/key`: the scope, state, limits and usage of the key that the request has. It is not charged, and works with
//! paused and deactivated keys.

pub(crate) mod body;
mod limiter;
pub(crate) mod reader;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::header::ORIGIN;
use http::request::Parts;
use ipseity_domain::{ApiKey, Client, RequestOrigin};
use ipseity_ledger::LedgerTime;

use crate::admission::credentials;
use crate::error::Refusal;
use crate::key_status::body::{KeyStatusBody, sample_status};
use crate::key_status::reader::RestrictedStatus;
use crate::lookup::test_key::{find_test_key, test_response};
use crate::operation::Operation;
use crate::response::{json_line, json_response};
use crate::state::Api;
use crate::wall_clock::wall_clock;

pub(crate) async fn key_status_handler(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    parts: Parts,
) -> Response {
    let needs_https = api.needs_https(&client);
    if let Some(scope) = find_test_key(&api, &parts) {
        let sample = || status_response(&sample_status(scope), &client, &parts, wall_clock());
        return test_response(&api, needs_https, sample);
    }
    let result = async {
        if needs_https && credentials::has_key(&parts) {
            return Err(Refusal::HttpsRequired);
        }
        let key = find_key(&parts)?;
        let status = api.key_status_reader.read(&api.admission, client.address, &key).await?;
        status_response(&status, &client, &parts, api.admission.now_of(&key))
    };
    api.finish_response(Operation::KeyStatus.label(), result.await)
}

fn find_key(parts: &Parts) -> Result<ApiKey, Refusal> {
    let Some(api_key) = credentials::find_api_key(parts) else {
        let has_key = credentials::has_key_without_bearer(parts);
        return Err(if has_key { Refusal::MissingScheme } else { Refusal::MissingKey });
    };
    ApiKey::parse(&api_key).ok_or(Refusal::InvalidKey)
}

fn status_response(
    status: &RestrictedStatus,
    client: &Client,
    parts: &Parts,
    now: LedgerTime,
) -> Result<Response, Refusal> {
    // A key that was stolen must not show a stranger how it is protected and used.
    let is_rejected = status.restrictions.check(RequestOrigin::Missing, client.address).is_err();
    let body = KeyStatusBody::new(status, parts.headers.contains_key(ORIGIN) || is_rejected, now);
    Ok(json_response(json_line(&body).map_err(|_| Refusal::Internal)?))
}
