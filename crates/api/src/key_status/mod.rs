//! `GET /api/v1/key`: the scope, state, limits and usage of the key that the request has. It is not charged, and works with
//! paused and deactivated keys.

pub(crate) mod body;
pub(crate) mod reader;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::header::ORIGIN;
use http::request::Parts;
use ipseity_domain::{ApiKey, Client, RestrictionRefusal, TICKET_PREFIX};
use ipseity_ledger::LedgerTime;

use crate::admission::credentials;
use crate::admission::restricted::request_origin;
use crate::credential::find_credential;
use crate::error::Refusal;
use crate::key_status::body::{KeyStatusBody, sample_status};
use crate::key_status::reader::RestrictedStatus;
use crate::lookup::test_key::{find_test_scope, test_response};
use crate::operation::Operation;
use crate::response::{json_line, json_response};
use crate::state::Api;
use crate::tickets::Ticket;
use crate::wall_clock::wall_clock;

pub(crate) async fn key_status_handler(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    parts: Parts,
) -> Response {
    let needs_https = api.needs_https(&client);
    let credential = find_credential(&parts);
    if let Some(scope) = find_test_scope(&api, &credential) {
        let sample = || status_response(&sample_status(scope), &client, &parts, wall_clock());
        return test_response(&api, needs_https, sample);
    }
    let result = async {
        if needs_https && credentials::has_key(&parts) {
            return Err(Refusal::HttpsRequired);
        }
        let credential = credential?;
        if credential.starts_with(TICKET_PREFIX) {
            return ticket_status(&api, &client, &parts, &api.open_ticket(&credential)?).await;
        }
        let key = ApiKey::parse(&credential).ok_or(Refusal::InvalidKey)?;
        let status = api.key_status_reader.read(&api.admission, client.address, &key, key.digest).await?;
        status_response(&status, &client, &parts, api.admission.now_of(&key))
    };
    api.finish_response(Operation::KeyStatus.label(), result.await)
}

/// The scope and state of the key of a ticket. It is not a use of the ticket.
async fn ticket_status(api: &Api, client: &Client, parts: &Parts, ticket: &Ticket) -> Result<Response, Refusal> {
    let read = api.key_status_reader.read(&api.admission, client.address, &ticket.key, ticket.status_counter());
    let mut status = read.await.map_err(Refusal::for_ticket)?;
    let origin = request_origin(&parts.headers);
    match status.versioned.restrictions.check(ticket.credential(), origin, client.address) {
        Err(RestrictionRefusal::InvalidTicket) => return Err(Refusal::InvalidTicket),
        Ok(()) if ticket.allows(origin) => {}
        Ok(()) | Err(_) => return Err(Refusal::OriginNotAllowed),
    }
    status.status.scope = status.status.scope.min(ticket.scope);
    body_response(&KeyStatusBody::new(&status, true, api.admission.now_of(&ticket.key)))
}

fn status_response(
    status: &RestrictedStatus,
    client: &Client,
    parts: &Parts,
    now: LedgerTime,
) -> Result<Response, Refusal> {
    // A key that was stolen must not show a stranger how it is protected and used.
    let is_rejected = !status.versioned.restrictions.allows_address(client.address);
    body_response(&KeyStatusBody::new(status, parts.headers.contains_key(ORIGIN) || is_rejected, now))
}

fn body_response(body: &KeyStatusBody) -> Result<Response, Refusal> {
    Ok(json_response(json_line(body).map_err(|_| Refusal::Internal)?))
}
