//! `POST /api/v1/tickets`: creates a ticket. It is not charged.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::Response;
use http::header::ORIGIN;
use http::request::Parts;
use http::{HeaderName, Request};
use ipseity_domain::{ApiKey, Client, KeyState};
use jiff::Timestamp;

use super::body::TicketBody;
use super::creation::TicketOptions;
use super::{Ticket, Tickets};
use crate::admission::credentials;
use crate::error::Refusal;
use crate::operation::Operation;
use crate::response::{json_line, json_response};
use crate::state::Api;
use crate::wall_clock::wall_clock;

/// Larger than any valid body.
const BODY_BYTES_MAX: usize = 4096;

/// Browsers add them to requests of pages, and scripts cannot remove them. `Sec-Fetch-Mode` is not one of them: servers that use
/// the `fetch` of Node.js send it too, and browsers never send it alone.
const BROWSER_HEADERS: [HeaderName; 4] = [
    ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-dest"),
    HeaderName::from_static("sec-fetch-user"),
];

pub(crate) async fn ticket_handler(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    request: Request<Body>,
) -> Response {
    let (parts, body) = request.into_parts();
    let result = create_ticket(&api, &client, &parts, body).await;
    api.finish_response(Operation::Tickets.label(), result)
}

async fn create_ticket(api: &Api, client: &Client, parts: &Parts, body: Body) -> Result<Response, Refusal> {
    let tickets = api.tickets.as_deref().ok_or(Refusal::NotFound)?;
    if api.needs_https(client) && credentials::has_key(parts) {
        return Err(Refusal::HttpsRequired);
    }
    // A page must not have a key that creates tickets.
    if BROWSER_HEADERS.iter().any(|name| parts.headers.contains_key(name)) {
        return Err(Refusal::TicketForPage);
    }
    let key = credentials::find_header_key(parts).ok_or(Refusal::MissingHeaderKey)?;
    let key = ApiKey::parse(key).ok_or(Refusal::InvalidKey)?;
    let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| Refusal::InvalidTicketOption("JSON"))?;
    let options = TicketOptions::parse(&body)?;
    tickets.creations.take(None, key.digest, Instant::now()).map_err(|reached| Refusal::TicketLimited {
        now: wall_clock(),
        limit: reached.limit.into(),
        retry_after_s: reached.retry_after_s,
    })?;
    let ticket = authorize(api, client, &key, &options).await?;
    ticket_response(api, tickets, &ticket, options.lifetime_s)
}

/// The ticket, if the key may create one now.
async fn authorize(api: &Api, client: &Client, key: &ApiKey, options: &TicketOptions) -> Result<Ticket, Refusal> {
    let status = api.admission.key_status(key).await?;
    let versioned = api.admission.restrictions_of(key, status.restriction_version).await?;
    match status.flags.state() {
        KeyState::Inactive => return Err(Refusal::Inactive),
        KeyState::Paused => return Err(Refusal::Paused),
        KeyState::Active => {}
    }
    let now_s = api.admission.now_of(key).as_secs();
    if let Some(restrictions) = versioned.as_deref().map(|versioned| &versioned.restrictions) {
        if restrictions.expires_at_s.is_some_and(|expires_at_s| now_s >= expires_at_s) {
            return Err(Refusal::Expired);
        }
        if !restrictions.origins.is_empty() {
            return Err(Refusal::TicketForPage);
        }
        if !restrictions.allows_address(client.address) {
            return Err(Refusal::NetworkNotAllowed);
        }
    }
    Ok(Ticket {
        id: Ticket::new_id().ok_or(Refusal::Internal)?,
        key: *key,
        restriction_version: versioned.map_or(0, |versioned| versioned.version),
        scope: options.scope.map_or(status.scope, |scope| scope.min(status.scope)),
        expires_at_s: now_s + options.lifetime_s,
        uses_max: options.uses,
        origin: options.origin.clone(),
    })
}

fn ticket_response(api: &Api, tickets: &Tickets, ticket: &Ticket, expires_in_s: u64) -> Result<Response, Refusal> {
    let text = ticket.seal(&tickets.sealer, api.admission.sealing_time_s()).ok_or(Refusal::Internal)?;
    let expires_at = Timestamp::from_second(ticket.expires_at_s.cast_signed()).map_err(|_| Refusal::Internal)?;
    let body = TicketBody {
        status: "success",
        ticket: &text,
        scope: ticket.scope.name(),
        origin: ticket.origin.as_deref(),
        uses: ticket.uses_max,
        expires_in_s,
        expires_at: expires_at.to_string(),
    };
    Ok(json_response(json_line(&body).map_err(|_| Refusal::Internal)?))
}
