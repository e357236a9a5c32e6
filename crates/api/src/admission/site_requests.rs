//! What a home node answers remote nodes. It does the same for their requests as for those of its clients: it charges,
//! fills, records pauses and reconciles.
//!
//! A remote node may lie. So home processes no charge that was sent long ago, and nothing of a key whose digest is wrong.

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::{BURST_LIMIT, BURST_LIMIT_MAX, KeyId, UtcDay};
use ipseity_home::DELIVERY_TIMEOUT;
use ipseity_home::message::{
    ChargeRequest, DemoVerdictMessage, KeyMessage, PongMessage, ReconcileRequest, ReconciledMessage, RecordMessage,
    RefusalsMessage, Reply, ReplyLine, Request, RequestLine, VerdictMessage,
};
use ipseity_ledger::{
    AppliedRestrictions, Arrival, ChargeId, DataSet, DemoReconcileBatch, LedgerTime, REMOTE_ARRIVAL_AHEAD_MAX_MS,
    ReconcileBatch, RemoteSlot, SentCharge, Verdict,
};
use ipseity_store::RefusalReason;
use tokio::time::timeout;

use crate::admission::backend::{Backend, Stores, has_seen_key};
use crate::admission::degraded::reconcile::BatchOutcome;
use crate::admission::key_request::KeyRequest;
use crate::admission::restricted::Restricted;
use crate::admission::{Admission, ChargeFailure};
use crate::error::Refusal;

/// Maximum time to process a request. The remote node does not wait longer by default.
const PROCESSING_TIMEOUT: Duration = Duration::from_secs(2);
/// Length of the id of a remote node's process.
const NODE_ID_CHARS: usize = 16;
/// Maximum number of days in a batch of demo requests.
const DEMO_DAYS_MAX: usize = 3;
/// Maximum number of requests per day in a batch that a remote node takes back or adds.
const BATCH_REQUESTS_MAX: i64 = 10_000_000;
/// Maximum number of rejections of a key or the demo in a message.
const REFUSALS_MAX: u64 = 10_000_000;
/// A time with more digits than the columns in Redis have.
const TIME_MAX_MS: u64 = 10_000_000_000_000;

impl Admission {
    /// Answers a request of a remote node.
    pub async fn answer_remote_node(self: Arc<Self>, site: Arc<str>, line: RequestLine) -> ReplyLine {
        let (number, sent_at, request) = line;
        let Backend::Stores(stores) = &self.backend else { return (number, None, Reply::NotProcessed) };
        let sent_at = LedgerTime(sent_at);
        let reply = if !must_be_in_time(&request) || is_in_time(stores, sent_at) {
            // A charge or a batch that takes too long may be applied nevertheless.
            let late_reply = match &request {
                Request::Charge(charge) => unconfirmed(&sent_charge(stores, sent_at, LedgerTime(charge.arrival))),
                Request::Reconcile(_) => unconfirmed(&sent_charge(stores, sent_at, LedgerTime(0))),
                Request::Ping
                | Request::ChargeDemo
                | Request::FindRecord(_)
                | Request::KeyStatus(_)
                | Request::FindDemoUsage
                | Request::ReconcileDemo(_)
                | Request::AddRefusals(_)
                | Request::ClaimSlot(_) => Reply::NotProcessed,
            };
            let reply = timeout(PROCESSING_TIMEOUT, self.process_remote_request(stores, &site, sent_at, request));
            reply.await.unwrap_or(late_reply)
        } else {
            Reply::NotProcessed
        };
        (number, stores.ledger.slowest_clock().map(|now| now.0), reply)
    }

    async fn process_remote_request(
        &self,
        stores: &Stores,
        site: &str,
        sent_at: LedgerTime,
        request: Request,
    ) -> Reply {
        match request {
            Request::Ping => {
                stores.ledger.refresh_clocks().await;
                Reply::Pong(PongMessage::new(stores.ledger.data_sets(), stores.ledger.database().as_deref()))
            }
            Request::Charge(charge) => self.charge_for_remote_node(stores, &charge, sent_at).await,
            Request::ChargeDemo => self.charge_demo_for_remote_node().await,
            Request::FindRecord(key) => self.find_record_for_remote_node(stores, &key).await,
            Request::KeyStatus(key) => self.key_status_for_remote_node(&key).await,
            Request::FindDemoUsage => match self.find_demo_usage().await {
                Some(usage) => Reply::DemoUsage(usage.map(|usage| (usage.day.0, usage.count))),
                None => Reply::NotProcessed,
            },
            Request::Reconcile(batch) => self.reconcile_for_remote_node(stores, site, &batch).await,
            Request::ReconcileDemo(batch) => {
                self.reconcile_demo_for_remote_node(stores, sent_at.day(), batch.into()).await
            }
            Request::AddRefusals(refusals) => match stores.ledger.slowest_clock() {
                Some(now) => self.add_refusals(now.day(), &refusals),
                None => Reply::NotProcessed,
            },
            Request::ClaimSlot(node) if node.len() == NODE_ID_CHARS && self.slot_claims.may_claim(site) => {
                // One at a time: they lock a table.
                let _turn = self.slot_claims.turn.lock().await;
                match stores.store.sites().claim_slot(site, &node).await {
                    Ok(slot) => Reply::Slot(slot.and_then(|slot| slot.try_into().ok())),
                    Err(_) => Reply::NotProcessed,
                }
            }
            Request::ClaimSlot(_) => Reply::NotProcessed,
        }
    }

    async fn charge_for_remote_node(&self, stores: &Stores, charge: &ChargeRequest, sent_at: LedgerTime) -> Reply {
        let (Some(key), Some(charge_id)) = (charge.key.parse(), ChargeId::from_number(charge.id)) else {
            return Reply::NotProcessed;
        };
        let owner = stores.ledger.owner_of(key.id);
        let is_ahead = charge.arrival > sent_at.0 || charge.arrival > owner.now().0 + REMOTE_ARRIVAL_AHEAD_MAX_MS;
        if is_ahead || !owner.is_clock_synced() {
            return Reply::NotProcessed;
        }
        if self.key_lookups.is_missing(key.id) {
            return Reply::NoSuchKey;
        }
        let slot = charge.slot.and_then(RemoteSlot::from_number);
        let arrival = Arrival::AtRemoteNode { arrival: LedgerTime(charge.arrival), sent_at, slot };
        let (version, is_refused) = charge.restrictions.unwrap_or_default();
        let applied = AppliedRestrictions { version, is_refused };
        let request = KeyRequest { key, owner, charge_id, arrival, applied, restricted: Restricted::default() };
        match self.obtain_verdict(&request).await {
            Ok(verdict) => {
                if let Verdict::PausedNow { now, burst_epoch, .. } = *verdict.verdict() {
                    Box::pin(self.record_pause(key.id, now, burst_epoch)).await;
                }
                VerdictMessage::new(verdict.verdict()).map_or(Reply::NotProcessed, Reply::Verdict)
            }
            Err(ChargeFailure::Refused(Refusal::InvalidKey)) => Reply::NoSuchKey,
            Err(ChargeFailure::Refused(_) | ChargeFailure::NotCharged) => Reply::NotProcessed,
            Err(ChargeFailure::Unconfirmed(sent)) => unconfirmed(&sent),
        }
    }

    async fn charge_demo_for_remote_node(&self) -> Reply {
        let Some(verdict) = self.charge_demo().await else { return Reply::NotProcessed };
        self.observe_demo_verdict(verdict.verdict());
        DemoVerdictMessage::new(verdict.verdict()).map_or(Reply::NotProcessed, Reply::DemoVerdict)
    }

    async fn find_record_for_remote_node(&self, stores: &Stores, key: &KeyMessage) -> Reply {
        let Some(key) = key.parse() else { return Reply::NotProcessed };
        if self.key_lookups.is_missing(key.id) {
            return Reply::NoSuchKey;
        }
        let now_s = stores.ledger.owner_of(key.id).now().as_secs();
        // The remote node may know less than this one, so a local record does not replace the query.
        let _permit = self.key_lookups.permits(self.degraded.knows(key.id)).acquire().await.ok();
        match self.query_store(false, stores.store.keys().find_record(key.id)).await {
            Some(Some(record)) => match RecordMessage::new(&record, &key.digest, now_s) {
                Some(message) => Reply::Record(Box::new(message)),
                None => Reply::WrongSecret,
            },
            Some(None) => Reply::NoSuchKey,
            None => Reply::NotProcessed,
        }
    }

    async fn key_status_for_remote_node(&self, key: &KeyMessage) -> Reply {
        let Some(key) = key.parse() else { return Reply::NotProcessed };
        match self.key_status(&key).await {
            Ok(status) => Reply::KeyStatus((&status).into()),
            Err(Refusal::InvalidKey) => Reply::NoSuchKey,
            Err(_) => Reply::NotProcessed,
        }
    }

    async fn reconcile_for_remote_node(&self, stores: &Stores, site: &str, request: &ReconcileRequest) -> Reply {
        let (Some(key), Some(batch)) = (request.key.parse(), request.parse().filter(is_plausible)) else {
            return Reply::NotProcessed;
        };
        let is_trusted = self.may_charge(&stores.ledger.owner_of(key.id)) && stores.ledger.data_sets() != DataSet::NONE;
        if !is_trusted || request.node.len() != NODE_ID_CHARS {
            return Reply::NotProcessed;
        }
        match stores.store.keys().find_record(key.id).await {
            Ok(Some(record)) if has_seen_key(&record, &key) => {}
            Ok(Some(_)) => return Reply::WrongSecret,
            Ok(None) => return Reply::NoSuchKey,
            Err(_) => return Reply::NotProcessed,
        }
        let batch = with_data_set_here(stores, batch);
        let node = format!("{site}:{}", request.node);
        match self.reconcile_at_stores(stores, Some(&node), &batch).await {
            BatchOutcome::Done { quota, unverifiable } => {
                Reply::Reconciled(ReconciledMessage { quota: (&quota).into(), unverifiable })
            }
            BatchOutcome::TooEarly => Reply::TooEarly,
            BatchOutcome::NoSuchKey => Reply::NoSuchKey,
            BatchOutcome::WrongSecret => Reply::WrongSecret,
            BatchOutcome::Failed(Some(sent)) => unconfirmed(&sent),
            BatchOutcome::Failed(None) => Reply::NotProcessed,
        }
    }

    async fn reconcile_demo_for_remote_node(
        &self,
        stores: &Stores,
        today: UtcDay,
        mut batch: DemoReconcileBatch,
    ) -> Reply {
        // More uses the quota up as well. A node with a higher limit would send a rejected batch again, for ever.
        batch.days.iter_mut().for_each(|usage| usage.count = usage.count.min(self.demo_daily_limit));
        let is_plausible =
            batch.days.len() <= DEMO_DAYS_MAX && batch.days.iter().all(|usage| usage.day.0.abs_diff(today.0) <= 2);
        if !is_plausible || !self.may_charge(&stores.ledger.owner_of_demo()) {
            return Reply::NotProcessed;
        }
        let is_counted = self.reconcile_demo_at_stores(stores, &batch).await;
        if is_counted { Reply::Done } else { Reply::NotProcessed }
    }

    fn add_refusals(&self, today: UtcDay, refusals: &RefusalsMessage) -> Reply {
        // PostgreSQL rejects a day that is not a date and a count of 0, and with it all others of a statement.
        let is_plausible = |day: u32, count: u64| day.abs_diff(today.0) <= 1 && (1..=REFUSALS_MAX).contains(&count);
        let reasons = [
            RefusalReason::Inactive,
            RefusalReason::Paused,
            RefusalReason::Burst,
            RefusalReason::QuotaExhausted,
            RefusalReason::WrongSecret,
            RefusalReason::Restricted,
        ];
        for (key, day, name, count) in &refusals.keys {
            let reason = reasons.into_iter().find(|reason| reason.name() == name);
            if let (Some(key), Some(reason), true) = (KeyId::parse(key), reason, is_plausible(*day, *count)) {
                self.usage_buffer.add_refused(key, UtcDay(*day), reason, *count);
            }
        }
        for (day, count) in refusals.demo.iter().filter(|(day, count)| is_plausible(*day, *count)) {
            self.usage_buffer.add_demo_refused(UtcDay(*day), *count);
        }
        Reply::Done
    }
}

/// Whether a request must not be processed late: the node decides itself meanwhile, or counts it on another day.
const fn must_be_in_time(request: &Request) -> bool {
    match request {
        Request::Charge(_) | Request::ChargeDemo | Request::Reconcile(_) | Request::ReconcileDemo(_) => true,
        Request::Ping
        | Request::FindRecord(_)
        | Request::KeyStatus(_)
        | Request::FindDemoUsage
        | Request::AddRefusals(_)
        | Request::ClaimSlot(_) => false,
    }
}

fn is_in_time(stores: &Stores, sent_at: LedgerTime) -> bool {
    let Some(now) = stores.ledger.slowest_clock() else { return false };
    u128::from(now.0.saturating_sub(sent_at.0)) <= DELIVERY_TIMEOUT.as_millis()
        && sent_at.0 <= now.0 + REMOTE_ARRIVAL_AHEAD_MAX_MS
}

/// Whether a batch is one that a node could have. Redis would be busy with a larger one.
fn is_plausible(batch: &ReconcileBatch) -> bool {
    let times = batch.recent.iter().map(|charge| charge.at);
    let unconfirmed = batch.unconfirmed.iter().map(|charge| &charge.sent).chain(&batch.first_attempt);
    let mut times = times.chain(unconfirmed.flat_map(|sent| [sent.at, sent.arrival]));
    batch.recent.len() <= BURST_LIMIT_MAX
        && batch.unconfirmed.len() <= BURST_LIMIT
        && batch.days.len() <= BURST_LIMIT
        && batch.days.iter().all(|(_, count)| (-BATCH_REQUESTS_MAX..=BATCH_REQUESTS_MAX).contains(count))
        && batch.pause.as_ref().is_none_or(|pause| pause.at_ms < TIME_MAX_MS)
        && times.all(|time| time.0 < TIME_MAX_MS)
}

/// A remote node knows the data sets of all Redis servers together. If they are still the same, so is that of the key. Of a
/// charge that home reported as unconfirmed, it knows the data set of the key.
fn with_data_set_here(stores: &Stores, mut batch: ReconcileBatch) -> ReconcileBatch {
    let (all, here) = (stores.ledger.data_sets(), stores.ledger.data_set_of(batch.key));
    let sent = batch.unconfirmed.iter_mut().map(|charge| &mut charge.sent).chain(&mut batch.first_attempt);
    for sent in sent {
        sent.data_set = if sent.data_set == all || sent.data_set == here { here } else { DataSet::NONE };
    }
    batch
}

fn sent_charge(stores: &Stores, at: LedgerTime, arrival: LedgerTime) -> SentCharge {
    SentCharge { at, arrival, data_set: stores.ledger.data_sets() }
}

fn unconfirmed(sent: &SentCharge) -> Reply {
    Reply::Unconfirmed(sent.into())
}
