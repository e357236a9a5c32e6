//! Decides whether a request is admitted. The ledger authenticates the key and charges the request
//! in one step.
//!
//! - If Redis does not have the key's record, admission fills it from PostgreSQL and charges again.
//! - If Redis does not answer in time, the local limiter of this node decides ([`degraded`]).
//! - A remote node has neither: home decides ([`backend`], [`remote`]), and answers in [`site_requests`].
//! - An admitted request is proven by an [`Admitted`], which the renderer requires.

pub(crate) mod admitted;
pub(crate) mod backend;
mod caller_limits;
pub(crate) mod credentials;
pub(crate) mod degraded;
mod demo;
mod demo_shares;
mod key_lookups;
mod key_request;
mod key_status;
mod open_keys;
#[cfg(test)]
mod open_keys_model;
mod optimistic;
mod refusal_cache;
mod remote;
pub(crate) mod restricted;
mod restrictions;
mod site_requests;
mod slot_claims;
pub(crate) mod usage_buffer;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use http::request::Parts;
use ipseity_domain::{ApiKey, Client, KeyId, KeyPause, causes, is_mutant};
use ipseity_ledger::{Fence, LedgerError, LedgerTime, Owner, SentCharge, Verdict};
use ipseity_store::RefusalReason;
use tracing::{Instrument, info_span};

use crate::admission::admitted::{Admitted, Issued};
use crate::admission::backend::{Backend, BackendError, Stores};
use crate::admission::caller_limits::CallerLimits;
use crate::admission::degraded::DegradedMode;
use crate::admission::demo_shares::DemoShares;
use crate::admission::key_lookups::KeyLookups;
use crate::admission::key_request::KeyRequest;
use crate::admission::open_keys::OpenKeys;
use crate::admission::refusal_cache::{DemoRefusalCache, PersistentRefusal, RefusalCache, RefusalEntry};
use crate::admission::restricted::Caller;
use crate::admission::slot_claims::SlotClaims;
use crate::admission::usage_buffer::UsageBuffer;
use crate::error::Refusal;
use crate::failpoint;
use crate::limits::ApiLimits;
use crate::service::metrics::ApiMetrics;
use crate::tickets::Ticket;
use crate::trace::TRACE_TARGET;

/// Maximum number of fills per request. A fill is repeated only if a change of a key in the same bucket overtakes it.
const FILL_ATTEMPTS_MAX: usize = 5;

/// Authenticates and charges requests.
pub struct Admission {
    backend: Backend,
    degraded: DegradedMode,
    usage_buffer: Arc<UsageBuffer>,
    metrics: ApiMetrics,
    key_lookups: KeyLookups,
    open_keys: Arc<OpenKeys>,
    slot_claims: SlotClaims,
    refusal_cache: RefusalCache,
    demo_refusal_cache: DemoRefusalCache,
    demo_shares: DemoShares,
    /// Demo requests per day that all clients share.
    demo_daily_limit: u64,
    caller_limits: CallerLimits,
    /// Whether Redis is the one of this deployment. Otherwise no verdict of it is used.
    is_ledger_trusted: AtomicBool,
}

impl Admission {
    pub(crate) fn new(
        backend: Backend,
        usage_buffer: Arc<UsageBuffer>,
        metrics: ApiMetrics,
        limits: &ApiLimits,
    ) -> Self {
        Self {
            backend,
            degraded: DegradedMode::new(limits.degraded),
            usage_buffer,
            metrics,
            key_lookups: KeyLookups::new(limits),
            open_keys: OpenKeys::new(limits.degraded.local_keys_max),
            slot_claims: SlotClaims::default(),
            refusal_cache: RefusalCache::new(limits.refusal_cache_max),
            demo_refusal_cache: DemoRefusalCache::default(),
            demo_shares: DemoShares::new(limits.demo_requests_per_subnet_max),
            demo_daily_limit: limits.demo_daily_limit,
            caller_limits: CallerLimits::new(limits.caller_counters_max),
            is_ledger_trusted: AtomicBool::new(true),
        }
    }

    /// Authenticates a request and charges it. The key is that of the request, or of its ticket.
    ///
    /// Rare branches are boxed, here and below. Otherwise every request's future would include their state.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        client: &Client,
        parts: &Parts,
        key: ApiKey,
        ticket: Option<&Ticket>,
    ) -> Result<Admitted, Refusal> {
        let entry = self.refusal_cache.get(&key.digest);
        if let Some(cached) = entry.and_then(RefusalEntry::cached_refusal) {
            return Err(cached.into());
        }
        if self.key_lookups.is_missing(key.id) {
            return Err(Refusal::InvalidKey);
        }
        let mut request = KeyRequest::new(key, self.backend.owner_of(key.id));
        let caller = Caller::new(client, parts, ticket);
        self.apply_restrictions(&mut request, caller);
        if request.applied.is_refused && is_mutant("refused-without-charge") {
            return Err(request.restricted.refusal(request.owner.now()));
        }
        if let Some(admitted) = self.admit_before_charge(&request) {
            return Ok(admitted);
        }
        let mut verdict = self.obtain_verdict(&request).await;
        if let Ok(outdated) = &verdict
            && let Verdict::Outdated { version, .. } = *outdated.verdict()
        {
            verdict = Box::pin(self.charge_with_new_restrictions(&mut request, caller, version)).await;
        }
        let result = match verdict {
            Ok(verdict) => {
                if entry.is_some() && matches!(verdict.verdict(), Verdict::Admitted { .. }) {
                    self.refusal_cache.remove(&key.digest);
                }
                self.apply_verdict(&request, verdict).await
            }
            Err(ChargeFailure::Refused(refusal)) => Err(refusal),
            Err(ChargeFailure::NotCharged) => Box::pin(self.admit_degraded(&mut request, caller, None)).await,
            Err(ChargeFailure::Unconfirmed(sent)) => {
                let sent = Some(sent).filter(|_| !is_mutant("unconfirmed-taken-for-uncharged"));
                Box::pin(self.admit_degraded(&mut request, caller, sent)).await
            }
        };
        if matches!(&result, Err(refusal) if !refusal.counts_toward_burst()) {
            self.give_back_caller(&request.restricted, key.id);
        }
        result
    }

    async fn obtain_verdict(&self, request: &KeyRequest) -> Result<Issued<Verdict>, ChargeFailure> {
        let mut verdict = self.charge_key(request).await?;
        if matches!(verdict.verdict(), Verdict::Unknown(_)) {
            verdict = Box::pin(self.charge_after_fill(request)).await?;
        }
        Ok(verdict)
    }

    async fn charge_key(&self, request: &KeyRequest) -> Result<Issued<Verdict>, ChargeFailure> {
        let owner = &request.owner;
        if !self.may_charge(owner) || self.degraded.is_paused_here(request.key.id) {
            return Err(ChargeFailure::NotCharged);
        }
        let _permit = match &self.backend {
            // Anyone can make up keys. They must not delay the requests of known keys to home.
            Backend::Home(_) if !self.degraded.knows(request.key.id) => {
                self.key_lookups.permits(false).acquire().await.ok()
            }
            Backend::Home(_) | Backend::Stores(_) => None,
        };
        let in_flight = self.begin_charge(request);
        let start = Instant::now();
        let charge = pin!(Issued::charge(&self.backend, request));
        let verdict = charge.instrument(info_span!(target: TRACE_TARGET, "charge")).await;
        let received_at = Instant::now();
        match &self.backend {
            Backend::Stores(_) => self.metrics.observe_charge_duration(received_at - start),
            Backend::Home(_) => self.metrics.observe_home_charge_duration(received_at - start),
        }
        match verdict {
            Ok(verdict) => {
                owner.record_success();
                // The local record has the verdict before the key is open.
                let opening = in_flight.map(|in_flight| (in_flight, verdict.verdict().clone()));
                let verdict = verdict.restrict_by(&self.degraded, request, received_at);
                if let Some((in_flight, verdict)) = opening {
                    in_flight.finish(&verdict);
                }
                Ok(verdict)
            }
            Err(failure) => {
                if let Some(in_flight) = in_flight {
                    in_flight.close();
                }
                match &failure.error {
                    // A remote node's charge that was delivered late says nothing about Redis.
                    BackendError::Redis(LedgerError::Expired) if request.arrived_here_at().is_none() => {}
                    BackendError::Redis(error) => self.note_ledger_failure(owner, error),
                    BackendError::NoSuchKey => {
                        self.key_lookups.missing_keys.insert(request.key.id, received_at);
                        return Err(Refusal::InvalidKey.into());
                    }
                    error @ (BackendError::Home(_) | BackendError::HomeStores) => {
                        if matches!(error, BackendError::Home(_)) {
                            self.degraded.record_store_failure();
                        }
                        tracing::debug!(error = %causes(error), "charge failed");
                    }
                }
                Err(failure.sent.map_or(ChargeFailure::NotCharged, ChargeFailure::Unconfirmed))
            }
        }
    }

    /// Whether the owner of a key decides on its requests. Otherwise the local limiter does.
    fn may_charge(&self, owner: &Owner) -> bool {
        if is_mutant("one-breaker-for-all-shards") && self.is_degraded() {
            return false;
        }
        self.is_ledger_trusted.load(Ordering::Acquire) && !owner.is_unavailable()
    }

    /// Counts a failed call to Redis. Enough consecutive failures start degraded mode for the keys of this owner. An
    /// error that concerns one key does not count.
    fn note_ledger_failure(&self, owner: &Owner, error: &LedgerError) {
        if !error.is_outage() {
            tracing::error!(error = %causes(error), "charge failed");
        } else if owner.record_failure() {
            let server = owner.address();
            tracing::error!(error = %causes(error), server, "entered degraded mode");
            self.metrics.set_degraded(true);
        } else {
            tracing::debug!(error = %causes(error), "charge failed");
        }
    }

    /// Fills the key's record from PostgreSQL and charges again. Per key, one request at a time does this and
    /// the others wait for it.
    async fn charge_after_fill(&self, request: &KeyRequest) -> Result<Issued<Verdict>, ChargeFailure> {
        let Backend::Stores(stores) = &self.backend else { return Err(ChargeFailure::NotCharged) };
        let key_id = request.key.id;
        let Err(placeholder) = self.key_lookups.missing_keys.get_value_or_guard_async(&key_id).await else {
            return Err(Refusal::InvalidKey.into());
        };
        for _ in 0..FILL_ATTEMPTS_MAX {
            let verdict = self.charge_key(request).await?;
            let Verdict::Unknown(fence) = verdict.verdict() else { return Ok(verdict) };
            if !self.fill_key_record(stores, &request.owner, key_id, fence).await? {
                // The insert fails if the placeholder was evicted. Then the next request looks the id up again.
                let _ = placeholder.insert(Instant::now());
                return Err(Refusal::InvalidKey.into());
            }
        }
        tracing::error!(attempts = FILL_ATTEMPTS_MAX, "key record fill overtaken by changes");
        Err(Refusal::Internal.into())
    }

    /// Copies a key's record from PostgreSQL to Redis. Returns `false` if the key does not exist.
    async fn fill_key_record(
        &self,
        stores: &Stores,
        owner: &Owner,
        id: KeyId,
        fence: &Fence,
    ) -> Result<bool, ChargeFailure> {
        let start = self.degraded.begin_lookup(id);
        let found = self.find_key_record(id, self.degraded.knows(id)).await;
        let Some(key_record) = found else { return Err(ChargeFailure::NotCharged) };
        let Some(mut record) = key_record else { return Ok(false) };
        // The next charge needs the restrictions, and would read the same record again.
        if record.restrictions.is_some() {
            self.degraded.update_record(&record, start);
        }
        // The last count that this node saw may not be flushed to PostgreSQL yet.
        if !is_mutant("fill-ignores-node-count") {
            record.merge_usage(self.degraded.local_usage(id));
        }
        failpoint::delay_at("fill-before-write").await;
        stores.ledger.fill(&record, fence).await.map_err(|error| {
            self.note_ledger_failure(owner, &error);
            ChargeFailure::NotCharged
        })?;
        self.metrics.count_key_record_fill();
        Ok(true)
    }

    async fn apply_verdict(&self, request: &KeyRequest, verdict: Issued<Verdict>) -> Result<Admitted, Refusal> {
        if matches!(verdict.verdict(), Verdict::Admitted { .. }) {
            return Self::prove(request, verdict).ok_or(Refusal::Internal);
        }
        let refusal = self.record_refusal(request, verdict.verdict());
        if let Verdict::PausedNow { now, burst_epoch, .. } = *verdict.verdict() {
            Box::pin(self.record_pause(request.key.id, now, burst_epoch)).await;
        }
        Err(refusal)
    }

    /// The proof that a request is admitted, with what its response reports about the burst limit. The key of a page is public,
    /// and what is left would show a stranger how many requests pause it.
    fn prove(request: &KeyRequest, verdict: Issued<Verdict>) -> Option<Admitted> {
        let admitted = verdict.into_admitted()?;
        Some(if request.restricted.has_origins() { admitted.without_burst_left() } else { admitted })
    }

    /// Counts a request that a verdict does not admit.
    fn record_refusal(&self, request: &KeyRequest, verdict: &Verdict) -> Refusal {
        let key = &request.key;
        match verdict {
            Verdict::QuotaExhausted { quota } => {
                self.usage_buffer.record_refused(key.id, quota.day, RefusalReason::QuotaExhausted);
                Refusal::QuotaExhausted(*quota)
            }
            Verdict::PausedNow { now, burst_limit, .. } => {
                self.usage_buffer.record_refused(key.id, now.day(), RefusalReason::Burst);
                Refusal::BurstExceeded { now: *now, limit: *burst_limit }
            }
            Verdict::WrongSecret(now) => self.record_persistent_refusal(key, *now, PersistentRefusal::WrongSecret),
            Verdict::Inactive(now) => self.record_persistent_refusal(key, *now, PersistentRefusal::Inactive),
            Verdict::Paused { now, burst_limit } => {
                self.record_persistent_refusal(key, *now, PersistentRefusal::Paused { burst_limit: *burst_limit })
            }
            Verdict::Expired(now) => self.record_persistent_refusal(key, *now, PersistentRefusal::Expired),
            // Not cached: a caller that is refused must not affect others, and a change counts from the next request.
            Verdict::Restricted(now) => {
                self.usage_buffer.record_refused(key.id, now.day(), RefusalReason::Restricted);
                request.restricted.refusal(*now)
            }
            // Handled before.
            Verdict::Outdated { .. } => Refusal::Internal,
            Verdict::Unknown(_) | Verdict::Admitted { .. } => {
                tracing::error!("filled key record is missing in Redis; check that its maxmemory-policy is noeviction");
                Refusal::Internal
            }
        }
    }

    fn record_persistent_refusal(&self, key: &ApiKey, now: LedgerTime, refusal: PersistentRefusal) -> Refusal {
        self.usage_buffer.record_refused(key.id, now.day(), refusal.reason());
        self.refusal_cache.record(key.digest, refusal);
        refusal.into()
    }

    /// Records a pause in PostgreSQL before the response is sent, because the other nodes learn of it from there. If
    /// that fails, the pause stays with the pending charges of this node, or in the set of unrecorded pauses in Redis,
    /// until a background task records it.
    async fn record_pause(&self, key: KeyId, now: LedgerTime, burst_epoch: u64) {
        failpoint::delay_at("pause-before-insert").await;
        // Home records the pauses of a remote node.
        let Backend::Stores(stores) = &self.backend else { return };
        if self.degraded.is_paused_here(key) {
            if let Some(pause) = self.degraded.pending_charges.unrecorded_pause(key)
                && !self.record_local_pause(&pause).await
            {
                tracing::warn!("pause not recorded in PostgreSQL");
            }
            return;
        }
        match stores.ledger.pause_evidence(key, burst_epoch, now.0).await {
            Ok(pause) => record_ledger_pause(stores, &pause).await,
            Err(error) => tracing::warn!(error = %causes(&error), "pause not read from Redis"),
        }
    }
}

async fn record_ledger_pause(stores: &Stores, pause: &KeyPause) {
    if let Err(error) = stores.store.keys().record_pause(pause).await {
        tracing::error!(error = %causes(&error), "pause not recorded in PostgreSQL");
    } else if let Err(error) = stores.ledger.mark_pause_recorded(pause).await {
        tracing::warn!(error = %causes(&error), "pause not confirmed in Redis");
    }
}

/// Why there is no verdict.
enum ChargeFailure {
    /// The request is refused without one.
    Refused(Refusal),
    /// The charge was not sent.
    NotCharged,
    /// The charge was sent and Redis did not answer, so it may have been applied.
    Unconfirmed(SentCharge),
}

impl From<Refusal> for ChargeFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

#[cfg(test)]
impl Admission {
    /// An admission whose Redis and PostgreSQL do not exist.
    pub(crate) fn unreachable(metrics: ApiMetrics) -> Self {
        let timeout = std::time::Duration::from_millis(100);
        let ledger = ipseity_ledger::LedgerOptions {
            breaker_failures_max: 1,
            ..ipseity_ledger::LedgerOptions::new("redis://127.0.0.1:1", timeout)
        };
        let store = ipseity_store::StoreOptions {
            url: "postgres://127.0.0.1:1/none".to_owned(),
            application_name: "test",
            operator: None,
            token: None,
            connections_max: 1,
            timeout,
        };
        let limits = ApiLimits {
            key_fills_max: 1,
            unknown_lookups_max: 1,
            unknown_cache_max: 1,
            unknown_cache_ttl: timeout,
            refusal_cache_max: 1,
            demo_requests_per_subnet_max: 1,
            demo_daily_limit: 1,
            caller_counters_max: 1,
            render_cache_max: 1,
            degraded: crate::limits::DegradedLimits { local_keys_max: 1, max_age: timeout, store_timeout: timeout },
            key_status: crate::limits::MinuteLimits::for_test(),
        };
        let ledger = Arc::new(ipseity_ledger::Ledger::new(&ledger).expect("valid Redis URL"));
        let store = ipseity_store::Store::new(&store).expect("valid PostgreSQL URL");
        Self::new(Backend::Stores(Stores { ledger, store }), Arc::new(UsageBuffer::new(1)), metrics, &limits)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::Request;
    use ipseity_domain::{Address, ConnectionFacts, PlaintextKey};
    use prometheus_client::registry::Registry;

    use super::*;

    #[tokio::test]
    async fn unknown_key_is_not_admitted_without_redis_and_postgres() {
        let admission = Arc::new(Admission::unreachable(ApiMetrics::register(&mut Registry::default())));
        assert!(!admission.is_degraded());
        let (parts, ()) = Request::new(()).into_parts();
        let client = Client { address: Address::UNKNOWN, connection: ConnectionFacts::default() };
        let key = PlaintextKey::generate(|| fastrand::u8(..)).to_api_key();
        assert_eq!(admission.admit(&client, &parts, key, None).await.err(), Some(Refusal::Internal));
        assert!(admission.is_degraded() && !admission.can_serve_degraded());
        assert_eq!(admission.admit_demo(Address::new(Ipv4Addr::LOCALHOST.into())).await.err(), Some(Refusal::Internal));
    }
}
