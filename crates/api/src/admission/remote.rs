//! What a remote node asks home for, besides verdicts.

use std::time::Instant;

use ipseity_domain::ApiKey;
use ipseity_home::message::{ReconcileRequest, RefusalsMessage, Reply, Request};
use ipseity_home::{CallError, HomeClient};
use ipseity_ledger::{DemoReconcileBatch, LedgerTime, ReconcileBatch};

use crate::admission::Admission;
use crate::admission::backend::Backend;
use crate::admission::degraded::reconcile::BatchOutcome;
use crate::admission::usage_buffer::DrainedUsage;
use crate::error::Refusal;

/// Rows in a message, which is shorter than home's limit of a line.
const REFUSALS_PER_MESSAGE: usize = 500;

impl Admission {
    /// Sends the rejected requests since the last call to home, if this is a remote node.
    pub async fn report_refusals(&self) {
        let Backend::Home(home) = &self.backend else { return };
        let mut drained = self.usage_buffer.drain();
        send_refusals(home, &mut drained).await;
        self.usage_buffer.restore(drained);
    }

    /// Updates the local record of a key from home. If it does not answer, the last record is used.
    pub(super) async fn look_up_at_home(&self, home: &HomeClient, key: &ApiKey) -> Result<(), Refusal> {
        // If home did not answer the charge, the request does not wait for it again.
        if self.degraded.is_usable(key.id) && !self.degraded.may_query_store() {
            return Ok(());
        }
        let start = self.degraded.begin_lookup(key.id);
        let found = home.call(Request::FindRecord(key.into()), home.owner().now()).await;
        if found.is_err() {
            self.degraded.record_store_failure();
        }
        match found {
            Ok(Reply::Record(record)) => {
                let record = record.parse(key).ok_or(Refusal::Internal)?;
                self.degraded.update_partial_record(record, start);
                Ok(())
            }
            Ok(Reply::NoSuchKey) => {
                self.degraded.remove_key(key.id);
                self.key_lookups.missing_keys.insert(key.id, Instant::now());
                Err(Refusal::InvalidKey)
            }
            Ok(Reply::WrongSecret) => Err(Refusal::InvalidKey),
            Ok(_) | Err(_) if self.degraded.is_usable(key.id) => Ok(()),
            Ok(_) | Err(_) => Err(Refusal::Internal),
        }
    }

    pub(super) async fn reconcile_at_home(&self, home: &HomeClient, batch: &ReconcileBatch) -> BatchOutcome {
        let Some(key) = self.degraded.pending_charges.api_key(batch.key) else { return BatchOutcome::Failed(None) };
        let sent = home.sent_charge(LedgerTime(0));
        let request = Request::Reconcile(ReconcileRequest::new(&key, home.node_id(), batch));
        match home.call(request, sent.at).await {
            Ok(Reply::Reconciled(reconciled)) => {
                BatchOutcome::Done { quota: reconciled.quota.into(), unverifiable: reconciled.unverifiable }
            }
            Ok(Reply::TooEarly) => BatchOutcome::TooEarly,
            Ok(Reply::NoSuchKey) => BatchOutcome::NoSuchKey,
            Ok(Reply::WrongSecret) => BatchOutcome::WrongSecret,
            Ok(Reply::Unconfirmed(message)) => BatchOutcome::Failed(Some(message.parse().unwrap_or(sent))),
            Ok(_) | Err(CallError::NotSent) => BatchOutcome::Failed(None),
            Err(CallError::NoReply) => BatchOutcome::Failed(Some(sent)),
        }
    }

    /// Whether home has counted the batch.
    pub(super) async fn reconcile_demo_at_home(&self, home: &HomeClient, batch: &DemoReconcileBatch) -> bool {
        let reply = home.call(Request::ReconcileDemo(batch.into()), home.owner().now()).await;
        matches!(reply, Ok(Reply::Done))
    }
}

/// Removes what was sent. Without a reply it may have been added, and is not sent again.
async fn send_refusals(home: &HomeClient, drained: &mut DrainedUsage) {
    let is_sent = async |message| {
        let reply = home.call(Request::AddRefusals(message), home.owner().now()).await;
        !matches!(reply, Ok(Reply::NotProcessed) | Err(CallError::NotSent))
    };
    for rows in drained.refusal_rows().chunks(REFUSALS_PER_MESSAGE) {
        let keys =
            rows.iter().map(|row| (row.key.as_str().to_owned(), row.day.0, row.reason.name().to_owned(), row.count));
        if !is_sent(RefusalsMessage { keys: keys.collect(), demo: Vec::new() }).await {
            return;
        }
        drained.remove_refusals(rows);
    }
    for (usage, refused) in drained.demo_rows() {
        let demo = vec![(usage.day.0, refused)];
        if refused > 0 && !is_sent(RefusalsMessage { keys: Vec::new(), demo }).await {
            return;
        }
        drained.remove_demo_day(usage.day);
    }
}
