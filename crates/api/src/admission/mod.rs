//! Admission: one verdict from the ledger; what the counter store does not know, the durable store is asked once. A verdict that is missed
//! is made up for by what the node knows itself (`recall`).

pub(crate) mod credentials;
pub(crate) mod degraded;
pub(crate) mod refusal_cache;
pub(crate) mod usage_buffer;

use std::pin::pin;
use std::time::Instant;

use http::request::Parts;
use ipseity_domain::{ApiKey, DailyUsage, KeyId, KeyPause, Scope};
use ipseity_ledger::{ChargeId, Fence, LedgerError, LedgerTime, Quota, Verdict};
use ipseity_store::RefusalReason;
use tracing::{Instrument, info_span};

use crate::admission::refusal_cache::{PersistentRefusal, RefusalEntry};
use crate::error::Refusal;
use crate::failpoint;
use crate::{Api, TRACE_TARGET, UsageBuffer};

/// How often a fill that changes keep overtaking is tried: each try was overtaken by a change in its bucket within milliseconds.
const FILL_ATTEMPTS_MAX: usize = 5;

/// Proof that a request was authenticated and charged, or noted to be: only admission and recall make one.
pub(crate) struct Admitted {
    pub(super) scope: Scope,
    pub(super) quota: Quota,
}

impl Admitted {
    pub(crate) const fn scope(&self) -> Scope {
        self.scope
    }

    pub(crate) const fn quota(&self) -> &Quota {
        &self.quota
    }
}

impl Api {
    /// Authenticates a request and charges it.
    ///
    /// What seldom happens is kept in memory of its own, here and below: room for it would be made, and moved, for every request.
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
                if entry.is_some() && matches!(verdict, Verdict::Admitted { .. }) {
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

    async fn obtain_verdict(&self, key: &ApiKey, charge_id: ChargeId) -> Result<Verdict, ChargeFailure> {
        let mut verdict = self.charge_key(key, charge_id).await?;
        if matches!(verdict, Verdict::Unknown(_)) {
            verdict = Box::pin(self.charge_after_fill(key, charge_id)).await?;
        }
        Ok(verdict)
    }

    async fn charge_key(&self, key: &ApiKey, charge_id: ChargeId) -> Result<Verdict, ChargeFailure> {
        if self.degraded.breaker.is_open() {
            return Err(ChargeFailure::NotCharged);
        }
        let start = Instant::now();
        let sent_at = self.degraded.clock.at(start);
        let guard = UnconfirmedGuard { usage_buffer: &self.usage_buffer, key: key.id };
        let request = pin!(self.ledger.charge(key, charge_id));
        let verdict = request.instrument(info_span!(target: TRACE_TARGET, "charge")).await;
        std::mem::forget(guard);
        let received_at = Instant::now();
        self.metrics.observe_charge_duration(received_at - start);
        match verdict {
            Ok(verdict) => {
                self.degraded.breaker.record_success();
                self.degraded.observe(key, &verdict, received_at);
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

    /// Counts a call that the counter store did not answer; after a few in a row it is left alone.
    pub(crate) fn note_ledger_failure(&self, error: &LedgerError) {
        if self.degraded.breaker.record_failure() {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "the counter store does not answer; going on from memory"
            );
            self.metrics.set_degraded(true);
            self.ledger.disconnect_all();
        } else {
            tracing::debug!(error = error as &dyn std::error::Error, "no verdict");
        }
    }

    /// Fills the record from the durable store and charges again. For each key one request at a time does this; the others wait for it.
    async fn charge_after_fill(&self, key: &ApiKey, charge_id: ChargeId) -> Result<Verdict, ChargeFailure> {
        let Err(placeholder) = self.unknown_keys.get_value_or_guard_async(&key.id).await else {
            return Err(Refusal::InvalidKey.into());
        };
        for _ in 0..FILL_ATTEMPTS_MAX {
            let verdict = self.charge_key(key, charge_id).await?;
            let Verdict::Unknown(fence) = &verdict else { return Ok(verdict) };
            if !self.fill_key_record(key.id, fence).await? {
                // A guard that was displaced is no loss: the id is only looked up once more.
                let _ = placeholder.insert(());
                return Err(Refusal::InvalidKey.into());
            }
        }
        tracing::error!("a record could not be filled: changes in its bucket overtook it again and again");
        Err(Refusal::Internal.into())
    }

    /// Asks the durable store and writes what it says; `false` when no such key exists.
    async fn fill_key_record(&self, id: KeyId, fence: &Fence) -> Result<bool, ChargeFailure> {
        let Ok(_permit) = self.key_fills.try_acquire() else {
            tracing::warn!("more unknown keys at once than [ledger] key_fills_max");
            return Err(Refusal::Internal.into());
        };
        let Some(key_record) = self.find_key_record(id).await else { return Err(ChargeFailure::NotCharged) };
        let Some(mut record) = key_record else { return Ok(false) };
        // What this node was told last may not have been rolled up yet.
        record.merge_usage(self.degraded.local_usage(id));
        failpoint::delay_at("fill-before-write").await;
        self.ledger.fill(&record, fence).await.map_err(|error| {
            self.note_ledger_failure(&error);
            ChargeFailure::NotCharged
        })?;
        self.metrics.count_key_record_fill();
        Ok(true)
    }

    async fn apply_verdict(&self, key: &ApiKey, verdict: Verdict) -> Result<Admitted, Refusal> {
        if let Verdict::Admitted { scope, quota, yesterday, .. } = verdict {
            self.usage_buffer.record_admitted(key.id, DailyUsage { day: quota.day, count: quota.used });
            if let Some(yesterday) = yesterday {
                self.usage_buffer.record_yesterday(key.id, yesterday);
            }
            return Ok(Admitted { scope, quota });
        }
        let refusal = self.record_refusal(key, &verdict);
        if let Verdict::PausedNow(pause) = &verdict {
            Box::pin(self.record_pause(pause)).await;
        }
        Err(refusal)
    }

    /// Counts a request that a verdict does not admit.
    pub(crate) fn record_refusal(&self, key: &ApiKey, verdict: &Verdict) -> Refusal {
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
                tracing::error!("a record that was filled is unknown again; does the counter store evict keys?");
                Refusal::Internal
            }
        }
    }

    fn record_persistent_refusal(&self, key: &ApiKey, now: LedgerTime, refusal: PersistentRefusal) -> Refusal {
        self.usage_buffer.record_refused(key.id, now.day(), refusal.reason());
        self.refusal_cache.record(key.digest, refusal);
        refusal.into()
    }

    /// Writes a pause before the answer goes out. If the durable store does not answer in time, the entry in the counter store's `pending`
    /// set stands until the relay has swept it.
    async fn record_pause(&self, pause: &KeyPause) {
        failpoint::delay_at("pause-before-row").await;
        if let Err(error) = self.store.keys().record_pause(pause).await {
            tracing::error!(error = &error as &dyn std::error::Error, "a pause could not be written yet");
        } else if let Err(error) = self.ledger.mark_pause_recorded(pause).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a pause could not be confirmed yet");
        }
    }
}

/// A charge under way. Dropped before it is done, because its caller hung up, it has its count read when the next ones are rolled up.
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
pub(crate) enum ChargeFailure {
    /// None is needed.
    Refused(Refusal),
    /// The counter store could not be asked: nothing was charged.
    NotCharged,
    /// It was asked, at this moment, and did not answer: the charge may have been applied.
    Unconfirmed(LedgerTime),
}

impl From<Refusal> for ChargeFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
