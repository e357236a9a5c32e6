//! `POST /api/v1/tickets`: creates a ticket. It is not charged.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::Response;
use http::header::ORIGIN;
use http::request::Parts;
use http::{HeaderName, Request};
use ipseity_domain::{ApiKey, Client, KeyState, Scope, TICKET_PREFIX, test_ticket};
use jiff::Timestamp;

use super::body::TicketBody;
use super::creation::TicketOptions;
use super::{Ticket, Tickets};
use crate::admission::credentials;
use crate::error::Refusal;
use crate::lookup::test_key::{find_test_scope, test_response};
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
    let header_key = credentials::find_header_key(&parts).ok_or(Refusal::MissingHeaderKey).map(Cow::Borrowed);
    if let Some(scope) = find_test_scope(&api, &header_key) {
        let created = create_test_ticket(&api, &parts, scope, body).await;
        return test_response(&api, api.needs_https(&client), || created);
    }
    let result = create_ticket(&api, &client, &parts, header_key, body).await;
    api.finish_response(Operation::Tickets.label(), result)
}

async fn create_ticket(
    api: &Api,
    client: &Client,
    parts: &Parts,
    header_key: Result<Cow<'_, str>, Refusal>,
    body: Body,
) -> Result<Response, Refusal> {
    let tickets = api.tickets.as_deref().ok_or(Refusal::NotFound)?;
    if api.needs_https(client) && credentials::has_key(parts) {
        return Err(Refusal::HttpsRequired);
    }
    let key = header_key?;
    check_sender(parts, &key)?;
    let key = ApiKey::parse(&key).ok_or(Refusal::InvalidKey)?;
    tickets.creations.take(Some(client.address), key.digest, Instant::now()).map_err(|reached| {
        Refusal::TicketLimited { now: wall_clock(), limit: reached.limit.into(), retry_after_s: reached.retry_after_s }
    })?;
    let creator = authorize(api, client, &key).await?;
    let options = read_options(tickets, body).await?;
    let ticket = Ticket {
        id: Ticket::new_id().ok_or(Refusal::Internal)?,
        key,
        restriction_version: creator.restriction_version,
        scope: options.scope.map_or(creator.scope, |scope| scope.min(creator.scope)),
        expires_at_s: api.admission.now_of(&key).as_secs() + options.lifetime_s,
        uses_max: options.uses,
        origin: options.origin.clone(),
    };
    let text = ticket.seal(&tickets.sealer, api.admission.sealing_time_s()).ok_or(Refusal::Internal)?;
    ticket_response(&text, ticket.scope, &options, ticket.expires_at_s)
}

/// A page must not have a key that creates tickets, and a ticket must not replace itself.
fn check_sender(parts: &Parts, key: &str) -> Result<(), Refusal> {
    let is_browser = BROWSER_HEADERS.iter().any(|name| parts.headers.contains_key(name));
    if is_browser || key.starts_with(TICKET_PREFIX) { Err(Refusal::TicketForPage) } else { Ok(()) }
}

/// The options in the body, which must arrive in time.
async fn read_options(tickets: &Tickets, body: Body) -> Result<TicketOptions, Refusal> {
    let body = tokio::time::timeout(tickets.body_timeout, to_bytes(body, BODY_BYTES_MAX)).await;
    TicketOptions::parse(&body.ok().and_then(Result::ok).ok_or(Refusal::InvalidTicketOption("body"))?)
}

/// What a ticket takes over from the key that creates it.
struct TicketCreator {
    scope: Scope,
    restriction_version: u64,
}

/// Checks that the key may create a ticket now.
async fn authorize(api: &Api, client: &Client, key: &ApiKey) -> Result<TicketCreator, Refusal> {
    let status = api.admission.key_status(key).await?;
    let versioned = api.admission.restrictions_of(key, status.restriction_version).await?;
    match status.flags.state() {
        KeyState::Inactive => return Err(Refusal::Inactive),
        KeyState::Paused => return Err(Refusal::Paused { limit: status.burst_limit }),
        KeyState::Active => {}
    }
    if let Some(restrictions) = versioned.as_deref().map(|versioned| &versioned.restrictions) {
        let now_s = api.admission.now_of(key).as_secs();
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
    Ok(TicketCreator { scope: status.scope, restriction_version: versioned.map_or(0, |versioned| versioned.version) })
}

/// A ticket that works like the test key.
async fn create_test_ticket(api: &Api, parts: &Parts, key_scope: Scope, body: Body) -> Result<Response, Refusal> {
    let tickets = api.tickets.as_deref().ok_or(Refusal::NotFound)?;
    check_sender(parts, credentials::find_header_key(parts).unwrap_or_default())?;
    let options = read_options(tickets, body).await?;
    let scope = options.scope.map_or(key_scope, |scope| scope.min(key_scope));
    ticket_response(&test_ticket(scope), scope, &options, wall_clock().as_secs() + options.lifetime_s)
}

fn ticket_response(
    ticket: &str,
    scope: Scope,
    options: &TicketOptions,
    expires_at_s: u64,
) -> Result<Response, Refusal> {
    let expires_at = Timestamp::from_second(expires_at_s.cast_signed()).map_err(|_| Refusal::Internal)?;
    let body = TicketBody {
        status: "success",
        ticket,
        scope: scope.name(),
        origin: options.origin.as_deref(),
        uses: options.uses,
        expires_in_s: options.lifetime_s,
        expires_at: expires_at.to_string(),
    };
    Ok(json_response(json_line(&body).map_err(|_| Refusal::Internal)?))
}
