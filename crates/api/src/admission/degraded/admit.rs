//! Admission without a verdict of the counter store: by what this node knows, and by what the durable store says as long as it answers.

use ipseity_domain::{ApiKey, DailyUsage, KeyId, KeyPause, KeyRecord};
use ipseity_ledger::{ChargeId, DemoVerdict, LedgerTime, Verdict};
use ipseity_store::StoreError;

use crate::Api;
use crate::admission::Admitted;
use crate::error::Refusal;

impl Api {
    /// Whether the counter store is left alone, and memory stands in for it.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded.breaker.is_open()
    }

    /// Whether memory could stand in for the stores: it knows some key.
    #[must_use]
    pub fn can_serve_degraded(&self) -> bool {
        self.degraded.has_local_keys()
    }

    /// Some key has changed in the durable store, or may have.
    pub fn invalidate_key_records(&self) {
        self.degraded.invalidate();
    }

    /// Whether news of changes reaches this node from now on.
    pub fn set_key_events_subscribed(&self, is_subscribed: bool) {
        self.degraded.set_subscribed(is_subscribed);
    }

    pub(crate) async fn admit_degraded(
        &self,
        key: &ApiKey,
        charge_id: ChargeId,
        unconfirmed_since: Option<LedgerTime>,
    ) -> Result<Admitted, Refusal> {
        self.metrics.count_degraded_decision();
        self.refresh_local_key(key.id).await?;
        let Some(verdict) = self.degraded.check_request(key, charge_id, unconfirmed_since) else {
            tracing::debug!("neither store can tell, and this node does not know");
            return Err(Refusal::Internal);
        };
        if unconfirmed_since.is_some() && !matches!(verdict, Verdict::Admitted { .. }) {
            self.usage_buffer.record_unconfirmed(key.id);
        }
        if let Verdict::Admitted { scope, quota, .. } = verdict {
            return Ok(Admitted { scope, quota });
        }
        let refusal = self.record_refusal(key, &verdict);
        if let Verdict::PausedNow(pause) = &verdict
            // The one answer that is worth waiting for: every other node learns of the pause by this row.
            && !self.record_local_pause(pause).await
        {
            tracing::warn!("a pause could not be written yet");
        }
        Err(refusal)
    }

    /// Makes what is known of a key as good as it can be now.
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
                tracing::debug!("a key is unknown here, and neither store answers");
                return Err(Refusal::Internal);
            }
        }
        Ok(())
    }

    /// What the durable store says of a key; `None` when it does not answer in time, which is short for a key that is known here.
    pub(crate) async fn find_key_record(&self, id: KeyId) -> Option<Option<KeyRecord>> {
        let has_local_copy = self.degraded.is_usable(id);
        self.query_store(has_local_copy, self.store.keys().find_record(id)).await
    }

    /// The demo's count as the durable store has it; `None` when it does not answer in time.
    pub(crate) async fn find_demo_usage(&self) -> Option<Option<DailyUsage>> {
        self.query_store(self.degraded.demo_quota.has_usage(), self.store.usage().find_demo_usage()).await
    }

    /// Asks the durable store; where memory could stand in for it, only if it answers these days, and not for long.
    async fn query_store<T>(
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
                tracing::warn!(error = &error as &dyn std::error::Error, "the durable store could not be asked");
            }
            return None;
        };
        Some(result)
    }

    pub(crate) async fn admit_demo_degraded(&self) -> Result<ipseity_ledger::Quota, Refusal> {
        self.metrics.count_degraded_decision();
        if !self.degraded.demo_quota.has_usage() {
            let Some(usage) = self.find_demo_usage().await else { return Err(Refusal::Internal) };
            let zero_usage = DailyUsage { day: self.degraded.clock.now().day(), count: 0 };
            self.degraded.demo_quota.merge_usage(usage.unwrap_or(zero_usage));
        }
        match self.degraded.demo_quota.check(self.degraded.clock.now()) {
            DemoVerdict::Admitted { quota, .. } => Ok(quota),
            DemoVerdict::Exhausted(quota) => Err(self.record_demo_refusal(quota)),
            DemoVerdict::Unknown => Err(Refusal::Internal),
        }
    }

    /// Writes the row of a pause that this node made by itself; until that is done it waits among the unsettled.
    pub(crate) async fn record_local_pause(&self, pause: &KeyPause) -> bool {
        let is_recorded = self.store.keys().record_pause(pause).await.is_ok();
        if is_recorded {
            self.degraded.pending_charges.remove_recorded_pause(pause);
        }
        is_recorded
    }
}
