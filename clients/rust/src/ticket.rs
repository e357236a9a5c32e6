//! Tickets: short-lived replacements for a key, which a server creates for others.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderValue, InvalidHeaderValue};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::Error;

/// A ticket this close to its expiry is not sent any more.
const EXPIRY_MARGIN: Duration = Duration::from_secs(5);
/// No ticket is valid for longer.
const LIFETIME_MAX: Duration = Duration::from_secs(900);

type TicketError = Box<dyn StdError + Send + Sync>;
type SharedError = Arc<dyn StdError + Send + Sync>;
type TicketFuture = Pin<Box<dyn Future<Output = Result<TicketResponse, TicketError>> + Send>>;

/// Options of a new ticket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct TicketRequest {
    origin: Option<String>,
    lifetime_s: Option<u64>,
    uses: Option<u32>,
}

impl TicketRequest {
    /// A ticket that every client can use, five times within five minutes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the origin of the web pages that can use the ticket, such as `https://shop.example`.
    pub fn origin(self, origin: impl Into<String>) -> Self {
        Self { origin: Some(origin.into()), ..self }
    }

    /// Sets the lifetime in whole seconds, from 30 seconds to 15 minutes.
    pub fn lifetime(self, lifetime: Duration) -> Self {
        Self { lifetime_s: Some(lifetime.as_secs()), ..self }
    }

    /// Sets the number of lookups, from 1 to 100. Each node of the service counts by itself.
    pub fn uses(self, uses: u32) -> Self {
        Self { uses: Some(uses), ..self }
    }

    /// The body of the request.
    pub(crate) fn to_json(&self, scope: &str) -> String {
        let Self { origin, lifetime_s, uses } = self;
        serde_json::json!({ "scope": scope, "origin": origin, "lifetime_s": lifetime_s, "uses": uses }).to_string()
    }
}

/// A ticket. Send it as JSON to the page or program that uses it.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct TicketResponse {
    /// Sent in place of a key.
    pub ticket: String,
    /// Scope: `ip`, `geo` or `full`.
    pub scope: String,
    /// Origin of the web pages that can use the ticket. `None` if every client can.
    pub origin: Option<String>,
    /// Number of lookups.
    pub uses: u32,
    /// Seconds until the ticket expires.
    pub expires_in_s: u64,
    /// When the ticket expires, as RFC 3339.
    pub expires_at: String,
}

/// Omits the ticket, which is a secret while it is valid.
impl fmt::Debug for TicketResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ticket: _, scope, origin, uses, expires_in_s: _, expires_at } = self;
        let mut output = formatter.debug_struct("TicketResponse");
        output.field("scope", scope).field("origin", origin).field("uses", uses).field("expires_at", expires_at);
        output.finish_non_exhaustive()
    }
}

/// The current ticket, which a client and its clones share.
pub(crate) struct TicketCache {
    source: Box<dyn Fn() -> TicketFuture + Send + Sync>,
    /// Locked while a ticket is requested, so that lookups that need one at the same time wait for the same one.
    state: Mutex<TicketCacheState>,
}

#[derive(Default)]
struct TicketCacheState {
    current: Option<CachedTicket>,
    /// When the source failed last, and why.
    failure: Option<(Instant, SharedError)>,
}

struct CachedTicket {
    authorization: HeaderValue,
    uses_left: u32,
    deadline: Instant,
}

impl CachedTicket {
    fn from_response(response: &TicketResponse, start: Instant) -> Result<Self, TicketError> {
        let authorization = bearer(&response.ticket).map_err(|_| "the ticket contains invalid characters")?;
        let lifetime = Duration::from_secs(response.expires_in_s).min(LIFETIME_MAX).saturating_sub(EXPIRY_MARGIN);
        Ok(Self { authorization, uses_left: response.uses, deadline: start + lifetime })
    }
}

/// Omits the ticket.
impl fmt::Debug for TicketCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TicketCache").finish_non_exhaustive()
    }
}

impl TicketCache {
    pub(crate) fn new<F, R>(source: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<TicketResponse, TicketError>> + Send + 'static,
    {
        Self { source: Box::new(move || Box::pin(source())), state: Mutex::default() }
    }

    /// The `Authorization` header of one request.
    pub(crate) async fn take(&self) -> Result<HeaderValue, Error> {
        let arrival = Instant::now();
        let mut state = self.state.lock().await;
        let is_usable = |ticket: &CachedTicket| ticket.uses_left > 0 && Instant::now() < ticket.deadline;
        let mut ticket = match state.current.take().filter(is_usable) {
            Some(ticket) => ticket,
            None => self.request(&mut state.failure, arrival).await.map_err(Error::Ticket)?,
        };
        ticket.uses_left = ticket.uses_left.saturating_sub(1);
        let authorization = ticket.authorization.clone();
        state.current = Some(ticket);
        Ok(authorization)
    }

    /// Requests a ticket, unless that failed while the lookup waited for it.
    async fn request(
        &self,
        failure: &mut Option<(Instant, SharedError)>,
        arrival: Instant,
    ) -> Result<CachedTicket, SharedError> {
        if let Some((_, error)) = failure.as_ref().filter(|(failed_at, _)| *failed_at >= arrival) {
            return Err(Arc::clone(error));
        }
        let start = Instant::now();
        let ticket = (self.source)().await.and_then(|response| CachedTicket::from_response(&response, start));
        ticket.map_err(|error| {
            let error = SharedError::from(error);
            *failure = Some((Instant::now(), Arc::clone(&error)));
            error
        })
    }

    /// Stops using a ticket that the service rejected. Another lookup may have replaced it already.
    pub(crate) async fn discard(&self, authorization: &HeaderValue) {
        self.state.lock().await.current.take_if(|ticket| ticket.authorization == authorization);
    }
}

/// The `Authorization` header for a key or a ticket.
pub(crate) fn bearer(secret: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn response(ticket: u32, uses: u32, expires_in_s: u64) -> TicketResponse {
        TicketResponse {
            ticket: format!("ipt_{ticket}"),
            scope: "ip".to_owned(),
            origin: None,
            uses,
            expires_in_s,
            expires_at: "2026-11-15T14:08:22Z".to_owned(),
        }
    }

    /// A cache whose source returns the tickets 1, 2, 3, … after some time, and fails for the ticket 0.
    fn cache_from(first: u32, uses: u32, expires_in_s: u64) -> TicketCache {
        let next = Arc::new(AtomicU32::new(first));
        TicketCache::new(move || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if number == 0 { Err("no session".into()) } else { Ok(response(number, uses, expires_in_s)) }
            }
        })
    }

    async fn take(cache: &TicketCache) -> String {
        let header = cache.take().await.expect("ticket");
        assert!(header.is_sensitive());
        header.to_str().expect("text").replace("Bearer ipt_", "")
    }

    #[tokio::test]
    async fn lookups_share_a_ticket_until_it_is_used_up() {
        let cache = cache_from(1, 3, 300);
        let mut taken = String::new();
        for _ in 0..5 {
            taken += &take(&cache).await;
        }
        assert_eq!(taken, "11122");
    }

    #[tokio::test]
    async fn ticket_that_is_about_to_expire_or_has_no_uses_is_used_once() {
        for cache in [cache_from(1, 3, 5), cache_from(1, 0, 300)] {
            assert_eq!((take(&cache).await, take(&cache).await), ("1".to_owned(), "2".to_owned()));
        }
        take(&cache_from(1, 3, u64::MAX)).await;
    }

    #[tokio::test]
    async fn concurrent_lookups_wait_for_one_ticket() {
        let cache = cache_from(1, 2, 300);
        let (first, second, third) = tokio::join!(take(&cache), take(&cache), take(&cache));
        assert_eq!([first, second, third], ["1", "1", "2"]);
    }

    #[tokio::test]
    async fn concurrent_lookups_share_a_failure_and_the_next_one_asks_again() {
        let cache = cache_from(0, 2, 300);
        let (first, second) = tokio::join!(cache.take(), cache.take());
        for result in [first, second] {
            let error = result.expect_err("the source fails");
            assert!(matches!(&error, Error::Ticket(cause) if cause.to_string() == "no session"), "{error}");
        }
        assert_eq!(take(&cache).await, "1");
    }

    #[tokio::test]
    async fn canceled_lookup_does_not_block_the_next_one() {
        let cache = cache_from(1, 2, 300);
        tokio::time::timeout(Duration::from_millis(5), cache.take()).await.expect_err("the ticket takes longer");
        assert_eq!(take(&cache).await, "2");
    }

    #[tokio::test]
    async fn only_the_rejected_ticket_is_discarded() {
        let cache = cache_from(1, 2, 300);
        let first = cache.take().await.expect("ticket");
        cache.discard(&first).await;
        assert_eq!(take(&cache).await, "2");
        cache.discard(&first).await;
        assert_eq!(take(&cache).await, "2");
    }

    #[test]
    fn debug_output_omits_the_ticket() {
        assert!(!format!("{:?}", response(7, 1, 300)).contains("ipt_"));
    }
}
