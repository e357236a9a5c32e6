//! Admission while Redis does not answer: by the local limiter, and by PostgreSQL as long as that answers.

use std::sync::atomic::Ordering;
use std::time::Instant;

use ipseity_domain::{KeyId, KeyPause, KeyRecord, causes, is_mutant};
use ipseity_ledger::{Owner, PendingCharge, SentCharge};
use ipseity_store::StoreError;

use crate::admission::Admission;
use crate::admission::admitted::{Admitted, Issued};
use crate::admission::backend::Backend;
use crate::admission::key_request::KeyRequest;
use crate::admission::restricted::Caller;
use crate::error::Refusal;

impl Admission {
    /// Whether the local limiter decides on some or all keys.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        !self.is_ledger_trusted.load(Ordering::Acquire) || self.backend.owners().iter().any(Owner::is_unavailable)
    }

    /// Whether this node could answer requests in degraded mode: it has at least one local key record.
    #[must_use]
    pub fn can_serve_degraded(&self) -> bool {
        self.degraded.has_usable_keys()
    }

    /// Sets whether Redis is the one of this deployment. While it is not, the local limiter decides.
    pub fn set_ledger_trusted(&self, is_trusted: bool) {
        self.is_ledger_trusted.store(is_trusted, Ordering::Release);
        self.metrics.set_degraded(self.is_degraded());
    }

    /// Notes that a key has changed in PostgreSQL. Until it is looked up, the key is in doubt: without Redis it is not
    /// admitted. Returns whether this node has a record of it.
    pub fn report_change(&self, id: KeyId) -> bool {
        !is_mutant("notification-ignored") && self.degraded.report_change(id)
    }

    /// Looks up a key that has changed.
    pub async fn look_up_changed_key(&self, id: KeyId) {
        if let Err(refusal) = self.look_up_local_key(id, self.degraded.knows(id)).await {
            tracing::debug!(?refusal, "changed key not looked up");
        }
    }

    /// Sets whether this node receives key events from PostgreSQL. Without them no local key record counts as fresh.
    pub fn set_key_events_subscribed(&self, is_subscribed: bool) {
        self.degraded.set_subscribed(is_subscribed);
    }

    /// Charges a request to the local limiter. `sent` is a charge that Redis did not answer.
    pub(in crate::admission) async fn admit_degraded(
        &self,
        request: &mut KeyRequest,
        caller: Caller<'_>,
        sent: Option<SentCharge>,
    ) -> Result<Admitted, Refusal> {
        let key = request.key;
        self.metrics.count_degraded_decision();
        if !self.degraded.is_fresh(key.id) {
            match &self.backend {
                Backend::Stores(_) => self.look_up_local_key(key.id, self.degraded.knows(key.id)).await?,
                Backend::Home(home) => self.look_up_at_home(home, &key).await?,
            }
        }
        self.apply_restrictions(request, caller);
        let charge = PendingCharge { at: request.arrival_at_owner(), id: request.charge_id };
        let Some(verdict) = Issued::charge_locally(
            &self.degraded,
            &key,
            charge,
            request.owner.now(),
            sent,
            request.owner.burst_window_ms(),
            request.applied,
        ) else {
            tracing::debug!("local limiter has no verdict");
            return Err(Refusal::Internal);
        };
        self.apply_verdict(request, verdict).await
    }

    /// Updates the local record of a key from PostgreSQL. If it does not answer, the last record is used, unless the
    /// key is in doubt. `is_known` says that the key certainly exists.
    pub(in crate::admission) async fn look_up_local_key(&self, id: KeyId, is_known: bool) -> Result<(), Refusal> {
        if self.key_lookups.is_missing(id) {
            return Err(Refusal::InvalidKey);
        }
        let mut start = self.degraded.begin_lookup(id);
        let mut found = self.find_key_record(id, is_known).await;
        if found.is_none() && self.degraded.is_in_doubt(id) {
            // The key has changed during the lookup. It had a short timeout as long as the last record could be used.
            start = self.degraded.begin_lookup(id);
            found = self.find_key_record(id, is_known).await;
        }
        match found {
            Some(Some(record)) => self.degraded.update_record(&record, start),
            Some(None) => {
                self.degraded.remove_key(id);
                self.key_lookups.missing_keys.insert(id, Instant::now());
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

    /// A key's record in PostgreSQL; `None` if it does not answer in time. Waits for a permit as long as the request
    /// may take. If a local record can replace the result, it does not wait. Keys that are not known share few permits.
    pub(in crate::admission) async fn find_key_record(&self, id: KeyId, is_known: bool) -> Option<Option<KeyRecord>> {
        let Backend::Stores(stores) = &self.backend else { return None };
        let has_local_copy = self.degraded.is_usable(id);
        let permits = self.key_lookups.permits(is_known);
        let _permit = if has_local_copy { permits.try_acquire().ok()? } else { permits.acquire().await.ok()? };
        self.query_store(has_local_copy, stores.store.keys().find_record(id)).await
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
            // Lookups of unknown ids can be many, and say nothing about the others.
            if has_local_copy {
                self.degraded.record_store_failure();
            }
            if let Some(Err(error)) = result {
                tracing::warn!(error = %causes(&error), "PostgreSQL query failed");
            }
            return None;
        };
        Some(result)
    }

    /// Records a pause that this node decided on. It stays with the pending charges until Redis has it too.
    pub(in crate::admission) async fn record_local_pause(&self, pause: &KeyPause) -> bool {
        // Home records the pauses of a remote node when their batch is reconciled.
        let Backend::Stores(stores) = &self.backend else { return false };
        let is_recorded = stores.store.keys().record_pause(pause).await.is_ok();
        if is_recorded {
            self.degraded.pending_charges.mark_pause_recorded(pause);
        }
        is_recorded
    }
}
