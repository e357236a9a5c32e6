//! Admission while Redis does not answer: by the local limiter, and by PostgreSQL as long as that answers.

use ipseity_domain::{ApiKey, KeyId, KeyPause, KeyRecord};
use ipseity_ledger::{ChargeId, LedgerTime, Verdict};
use ipseity_store::StoreError;

use crate::admission::Admission;
use crate::admission::admitted::{Admitted, Issued};
use crate::error::Refusal;

impl Admission {
    /// Whether this node is in degraded mode.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded.breaker.is_open()
    }

    /// Whether this node could answer requests in degraded mode: it has at least one local key record.
    #[must_use]
    pub fn can_serve_degraded(&self) -> bool {
        self.degraded.has_local_keys()
    }

    /// Marks all local key records as stale, because a key has changed in PostgreSQL.
    pub fn invalidate_key_records(&self) {
        self.degraded.invalidate();
    }

    /// Sets whether this node receives key events from PostgreSQL. Without them no local key record counts as fresh.
    pub fn set_key_events_subscribed(&self, is_subscribed: bool) {
        self.degraded.set_subscribed(is_subscribed);
    }

    /// Charges a request to the local limiter. `unconfirmed_since` is the time of a charge that Redis did not answer.
    pub(in crate::admission) async fn admit_degraded(
        &self,
        key: &ApiKey,
        charge_id: ChargeId,
        unconfirmed_since: Option<LedgerTime>,
    ) -> Result<Admitted, Refusal> {
        self.metrics.count_degraded_decision();
        self.refresh_local_key(key.id).await?;
        let Some(verdict) = Issued::charge_locally(&self.degraded, key, charge_id, unconfirmed_since) else {
            tracing::debug!("local limiter has no verdict");
            return Err(Refusal::Internal);
        };
        if matches!(verdict.verdict(), Verdict::Admitted { .. }) {
            return verdict.into_admitted().ok_or(Refusal::Internal);
        }
        if unconfirmed_since.is_some() {
            self.usage_buffer.record_unconfirmed(key.id);
        }
        let refusal = self.record_refusal(key, verdict.verdict());
        if let Verdict::PausedNow(pause) = verdict.verdict()
            // The response waits for this insert, because the other nodes learn of the pause from PostgreSQL.
            && !self.record_local_pause(pause).await
        {
            tracing::warn!("pause not recorded in PostgreSQL");
        }
        Err(refusal)
    }

    /// Updates the local record of a key from PostgreSQL unless it is fresh.
    async fn refresh_local_key(&self, id: KeyId) -> Result<(), Refusal> {
        if self.degraded.is_fresh(id) {
            return Ok(());
        }
        if self.unknown_keys.get(&id).is_some() {
            return Err(Refusal::InvalidKey);
        }
        let invalidation_epoch = self.degraded.invalidation_epoch();
        let found = match self.key_fills.try_acquire() {
            Ok(_permit) => self.find_key_record(id).await,
            Err(_) => None,
        };
        match found {
            Some(Some(record)) => self.degraded.update_record(&record, invalidation_epoch),
            Some(None) => {
                self.degraded.remove_key(id);
                self.unknown_keys.insert(id, ());
                return Err(Refusal::InvalidKey);
            }
            None if self.degraded.is_usable(id) => {}
            None => {
                tracing::debug!("no usable key record");
                return Err(Refusal::Internal);
            }
        }
        Ok(())
    }

    /// A key's record in PostgreSQL; `None` if it does not answer in time. The timeout is shorter if there is
    /// a usable local record.
    pub(in crate::admission) async fn find_key_record(&self, id: KeyId) -> Option<Option<KeyRecord>> {
        let has_local_copy = self.degraded.is_usable(id);
        self.query_store(has_local_copy, self.store.keys().find_record(id)).await
    }

    /// Runs a PostgreSQL query. If a local copy can replace the result, the query is skipped after a recent
    /// failure and has a shorter timeout.
    pub(in crate::admission) async fn query_store<T>(
        &self,
        has_local_copy: bool,
        query: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<T> {
        let result = if has_local_copy {
            if !self.degraded.may_query_store() {
                return None;
            }
            tokio::time::timeout(self.degraded.limits.store_timeout, query).await.ok()
        } else {
            Some(query.await)
        };
        let Some(Ok(result)) = result else {
            self.degraded.record_store_failure();
            if let Some(Err(error)) = result {
                tracing::warn!(error = &error as &dyn std::error::Error, "PostgreSQL query failed");
            }
            return None;
        };
        Some(result)
    }

    /// Records a pause that this node decided on. Until that succeeds, the pause stays with the pending charges.
    pub(super) async fn record_local_pause(&self, pause: &KeyPause) -> bool {
        let is_recorded = self.store.keys().record_pause(pause).await.is_ok();
        if is_recorded {
            self.degraded.pending_charges.remove_recorded_pause(pause);
        }
        is_recorded
    }
}
