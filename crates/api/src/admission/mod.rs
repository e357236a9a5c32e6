//! Decides whether a request is admitted. The ledger authenticates the key and charges the request
//! in one step.
//!
//! - If Redis does not have the key's record, admission fills it from PostgreSQL and charges again.
//! - If Redis does not answer in time, the local limiter of this node decides ([`degraded`]).
//! - An admitted request is proven by an [`Admitted`], which the renderer requires.

pub(crate) mod admitted;
pub(crate) mod credentials;
pub(crate) mod degraded;
mod demo;
mod refusal_cache;
pub(crate) mod usage_buffer;

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use ipseity_domain::{ApiKey, DailyUsage, KeyId, KeyPause};
use ipseity_ledger::{ChargeId, Fence, Ledger, LedgerError, LedgerTime, Verdict};
use ipseity_store::{RefusalReason, Store};
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;
use tracing::{Instrument, info_span};

use crate::admission::admitted::{Admitted, Issued};
use crate::admission::degraded::DegradedMode;
use crate::admission::refusal_cache::{DemoRefusalCache, PersistentRefusal, RefusalCache, RefusalEntry};
use crate::admission::usage_buffer::UsageBuffer;
use crate::error::Refusal;
use crate::failpoint;
use crate::limits::ApiLimits;
use crate::service::metrics::ApiMetrics;
use crate::trace::TRACE_TARGET;

/// Maximum number of fills per request. A fill is repeated only if a change of a key in the same bucket overtakes it.
const FILL_ATTEMPTS_MAX: usize = 5;

/// Authenticates and charges requests.
pub struct Admission {
    ledger: Arc<Ledger>,
    store: Store,
    degraded: DegradedMode,
    usage_buffer: Arc<UsageBuffer>,
    metrics: ApiMetrics,
    /// Ids of keys that do not exist. Ids are random and never reused, so entries cannot become stale. The cache also
    /// limits PostgreSQL lookups to one per id at a time.
    unknown_keys: Cache<KeyId, ()>,
    key_fills: Semaphore,
    refusal_cache: RefusalCache,
    demo_refusal_cache: DemoRefusalCache,
}

impl Admission {
    pub(crate) fn new(
        ledger: Arc<Ledger>,
        store: Store,
        usage_buffer: Arc<UsageBuffer>,
        metrics: ApiMetrics,
        limits: &ApiLimits,
    ) -> Self {
        Self {
            ledger,
            store,
            degraded: DegradedMode::new(limits.degraded),
            usage_buffer,
            metrics,
            unknown_keys: Cache::new(limits.unknown_cache_max),
            key_fills: Semaphore::new(limits.key_fills_max),
            refusal_cache: RefusalCache::new(limits.refusal_cache_max),
            demo_refusal_cache: DemoRefusalCache::default(),
        }
    }

    /// Authenticates a request and charges it.
    ///
    /// Rare branches are boxed, here and below. Otherwise every request's future would include their state.
    pub(crate) async fn admit(&self, parts: &Parts) -> Result<Admitted, Refusal> {
        let api_key = credentials::find_api_key(parts).ok_or(Refusal::MissingKey)?;
        let key = ApiKey::parse(&api_key).ok_or(Refusal::InvalidKey)?;
        let entry = self.refusal_cache.get(&key.digest);
        if let Some(cached) = entry.and_then(RefusalEntry::cached_refusal) {
            return Err(cached.into());
        }
        let charge_id = ChargeId::next();
        match self.obtain_verdict(&key, charge_id).await {
            Ok(verdict) => {
                if entry.is_some() && matches!(verdict.verdict(), Verdict::Admitted { .. }) {
                    self.refusal_cache.remove(&key.digest);
                }
                self.apply_verdict(&key, verdict).await
            }
            Err(ChargeFailure::Refused(refusal)) => Err(refusal),
            Err(ChargeFailure::NotCharged) => Box::pin(self.admit_degraded(&key, charge_id, None)).await,
            Err(ChargeFailure::Unconfirmed(sent_at)) => {
                Box::pin(self.admit_degraded(&key, charge_id, Some(sent_at))).await
            }
        }
    }

    async fn obtain_verdict(&self, key: &ApiKey, charge_id: ChargeId) -> Result<Issued<Verdict>, ChargeFailure> {
        let mut verdict = self.charge_key(key, charge_id).await?;
        if matches!(verdict.verdict(), Verdict::Unknown(_)) {
            verdict = Box::pin(self.charge_after_fill(key, charge_id)).await?;
        }
        Ok(verdict)
    }

    async fn charge_key(&self, key: &ApiKey, charge_id: ChargeId) -> Result<Issued<Verdict>, ChargeFailure> {
        if self.degraded.breaker.is_open() {
            return Err(ChargeFailure::NotCharged);
        }
        let start = Instant::now();
        let sent_at = self.degraded.clock.at(start);
        let guard = UnconfirmedGuard { usage_buffer: &self.usage_buffer, key: key.id };
        let request = pin!(Issued::charge(&self.ledger, key, charge_id));
        let verdict = request.instrument(info_span!(target: TRACE_TARGET, "charge")).await;
        std::mem::forget(guard);
        let received_at = Instant::now();
        self.metrics.observe_charge_duration(received_at - start);
        match verdict {
            Ok(verdict) => {
                self.degraded.breaker.record_success();
                self.degraded.observe(key, verdict.verdict(), received_at);
                Ok(verdict)
            }
            Err(error) => {
                self.note_ledger_failure(&error);
                Err(if error.may_have_been_applied() {
                    ChargeFailure::Unconfirmed(sent_at)
                } else {
                    ChargeFailure::NotCharged
                })
            }
        }
    }

    /// Counts a failed call to Redis. `failures_max` consecutive failures open the breaker and start degraded mode.
    fn note_ledger_failure(&self, error: &LedgerError) {
        if self.degraded.breaker.record_failure() {
            tracing::error!(error = error as &dyn std::error::Error, "entered degraded mode");
            self.metrics.set_degraded(true);
            self.ledger.disconnect_all();
        } else {
            tracing::debug!(error = error as &dyn std::error::Error, "charge failed");
        }
    }

    /// Fills the key's record from PostgreSQL and charges again. Per key, one request at a time does this and
    /// the others wait for it.
    async fn charge_after_fill(&self, key: &ApiKey, charge_id: ChargeId) -> Result<Issued<Verdict>, ChargeFailure> {
        let Err(placeholder) = self.unknown_keys.get_value_or_guard_async(&key.id).await else {
            return Err(Refusal::InvalidKey.into());
        };
        for _ in 0..FILL_ATTEMPTS_MAX {
            let verdict = self.charge_key(key, charge_id).await?;
            let Verdict::Unknown(fence) = verdict.verdict() else { return Ok(verdict) };
            if !self.fill_key_record(key.id, fence).await? {
                // The insert fails if the placeholder was evicted. Then the next request looks the id up again.
                let _ = placeholder.insert(());
                return Err(Refusal::InvalidKey.into());
            }
        }
        tracing::error!(attempts = FILL_ATTEMPTS_MAX, "key record fill overtaken by changes");
        Err(Refusal::Internal.into())
    }

    /// Copies a key's record from PostgreSQL to Redis. Returns `false` if the key does not exist.
    async fn fill_key_record(&self, id: KeyId, fence: &Fence) -> Result<bool, ChargeFailure> {
        let Ok(_permit) = self.key_fills.try_acquire() else {
            tracing::warn!("key fill rejected: [ledger] key_fills_max reached");
            return Err(Refusal::Internal.into());
        };
        let Some(key_record) = self.find_key_record(id).await else { return Err(ChargeFailure::NotCharged) };
        let Some(mut record) = key_record else { return Ok(false) };
        // The last count that this node saw may not be flushed to PostgreSQL yet.
        record.merge_usage(self.degraded.local_usage(id));
        failpoint::delay_at("fill-before-write").await;
        self.ledger.fill(&record, fence).await.map_err(|error| {
            self.note_ledger_failure(&error);
            ChargeFailure::NotCharged
        })?;
        self.metrics.count_key_record_fill();
        Ok(true)
    }

    async fn apply_verdict(&self, key: &ApiKey, verdict: Issued<Verdict>) -> Result<Admitted, Refusal> {
        if let Verdict::Admitted { quota, yesterday, .. } = verdict.verdict() {
            self.usage_buffer.record_admitted(key.id, DailyUsage { day: quota.day, count: quota.used });
            if let Some(yesterday) = yesterday {
                self.usage_buffer.record_yesterday(key.id, *yesterday);
            }
        } else {
            let refusal = self.record_refusal(key, verdict.verdict());
            if let Verdict::PausedNow(pause) = verdict.verdict() {
                Box::pin(self.record_pause(pause)).await;
            }
            return Err(refusal);
        }
        verdict.into_admitted().ok_or(Refusal::Internal)
    }

    /// Counts a request that a verdict does not admit.
    fn record_refusal(&self, key: &ApiKey, verdict: &Verdict) -> Refusal {
        match verdict {
            Verdict::QuotaExhausted { quota } => {
                self.usage_buffer.record_refused(key.id, quota.day, RefusalReason::QuotaExhausted);
                Refusal::QuotaExhausted(*quota)
            }
            Verdict::PausedNow(pause) => {
                let now = LedgerTime(pause.at_ms);
                self.usage_buffer.record_refused(key.id, now.day(), RefusalReason::Burst);
                Refusal::BurstExceeded(now)
            }
            Verdict::WrongSecret(now) => self.record_persistent_refusal(key, *now, PersistentRefusal::WrongSecret),
            Verdict::Inactive(now) => self.record_persistent_refusal(key, *now, PersistentRefusal::Inactive),
            Verdict::Paused(now) => self.record_persistent_refusal(key, *now, PersistentRefusal::Paused),
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

    /// Records a pause in PostgreSQL before the response is sent. If that fails, the pause stays in the set
    /// of unrecorded pauses in Redis until the outbox worker records it.
    async fn record_pause(&self, pause: &KeyPause) {
        failpoint::delay_at("pause-before-insert").await;
        if let Err(error) = self.store.keys().record_pause(pause).await {
            tracing::error!(error = &error as &dyn std::error::Error, "pause not recorded in PostgreSQL");
        } else if let Err(error) = self.ledger.mark_pause_recorded(pause).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "pause not confirmed in Redis");
        }
    }
}

/// Guards a charge in progress. If the client disconnects, the guard is dropped, and the next usage flush
/// reads the key's count from Redis.
struct UnconfirmedGuard<'a> {
    usage_buffer: &'a UsageBuffer,
    key: KeyId,
}

impl Drop for UnconfirmedGuard<'_> {
    fn drop(&mut self) {
        self.usage_buffer.record_unconfirmed(self.key);
    }
}

/// Why there is no verdict.
enum ChargeFailure {
    /// The request is refused without one.
    Refused(Refusal),
    /// The charge was not sent.
    NotCharged,
    /// The charge was sent at this time and Redis did not answer, so it may have been applied.
    Unconfirmed(LedgerTime),
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
        let ledger = ipseity_ledger::LedgerOptions { url: "redis://127.0.0.1:1".to_owned(), timeout };
        let store = ipseity_store::StoreOptions {
            url: "postgres://127.0.0.1:1/none".to_owned(),
            application_name: "test",
            connections_max: 1,
            timeout,
        };
        let limits = ApiLimits {
            key_fills_max: 1,
            unknown_cache_max: 1,
            refusal_cache_max: 1,
            render_cache_max: 1,
            degraded: crate::limits::DegradedLimits {
                local_keys_max: 1,
                max_age: timeout,
                failures_max: 1,
                store_timeout: timeout,
            },
        };
        Self::new(
            Arc::new(Ledger::new(&ledger).expect("valid Redis URL")),
            Store::new(&store).expect("valid PostgreSQL URL"),
            Arc::new(UsageBuffer::new(1)),
            metrics,
            &limits,
        )
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::AUTHORIZATION;
    use ipseity_domain::PlaintextKey;
    use prometheus_client::registry::Registry;

    use super::*;

    async fn admit_with_header(admission: &Admission, authorization: &str) -> Option<Refusal> {
        let request = Request::builder().header(AUTHORIZATION, authorization).body(()).expect("valid request");
        admission.admit(&request.into_parts().0).await.err()
    }

    #[tokio::test]
    async fn unknown_key_is_not_admitted_without_redis_and_postgres() {
        let admission = Admission::unreachable(ApiMetrics::register(&mut Registry::default()));
        assert_eq!(admit_with_header(&admission, "Basic x").await, Some(Refusal::MissingKey));
        assert_eq!(admit_with_header(&admission, "Bearer x").await, Some(Refusal::InvalidKey));
        assert!(!admission.is_degraded());
        let key = PlaintextKey::generate(|| fastrand::u8(..));
        let bearer = format!("Bearer {}", key.expose());
        assert_eq!(admit_with_header(&admission, &bearer).await, Some(Refusal::Internal));
        assert!(admission.is_degraded() && !admission.can_serve_degraded());
        assert_eq!(admission.admit_demo().await.err(), Some(Refusal::Internal));
    }
}
