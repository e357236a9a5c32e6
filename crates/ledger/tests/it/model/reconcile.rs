//! Reconciling the pending charges of a node. Each batch is compared with what was really charged.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipseity_domain::{DailyUsage, KeyPause, UtcDay};
use ipseity_ledger::{Ledger, LedgerTime, PendingCharge, ReconcileBatch, Reconciled};

use super::calls::StoredKey;
use super::days::{Counts, DayColumns, discard_future, raise_count};
use super::lost::{LostCharge, is_expired};
use super::walk::{NODES, RandomWalk};
use crate::fixture::DAY_MS;

const WINDOW_MS: u64 = 60_000;

/// A node: its handle, and what it has to reconcile of each key.
pub struct NodeModel {
    pub ledger: Arc<Ledger>,
    pub pending: Vec<PendingModel>,
    pub last_batch_number: u64,
}

#[derive(Default)]
pub struct PendingModel {
    pub days: BTreeMap<UtcDay, i64>,
    pub recent: Vec<PendingCharge>,
    pub lost: Vec<LostCharge>,
    pub batch: Option<SentBatch>,
}

/// A batch until its reply arrives.
pub struct SentBatch {
    batch: ReconcileBatch,
    lost: Vec<LostCharge>,
    /// The data set of the first attempt.
    first_data_set: u64,
    is_counted: bool,
}

impl PendingModel {
    pub fn lost_charges_mut(&mut self) -> impl Iterator<Item = &mut LostCharge> {
        self.lost.iter_mut().chain(self.batch.iter_mut().flat_map(|batch| &mut batch.lost))
    }

    /// A record that is lost before or after the clock is set back is not covered: a charge in the future becomes ambiguous
    /// once the clock has reached it again.
    pub fn drop_future(&mut self, now_ms: u64) {
        self.lost.retain(|lost| lost.unconfirmed.sent.at.0 <= now_ms);
        let is_future = |at: LedgerTime| at.0 > now_ms;
        self.batch.take_if(|sent| {
            sent.batch.first_attempt.is_some_and(|first| is_future(first.at))
                || sent.lost.iter().any(|lost| is_future(lost.unconfirmed.sent.at))
        });
    }
}

impl SentBatch {
    /// Whether a charge of the batch may still arrive and be applied.
    fn may_be_applied(&self, now_ms: u64) -> bool {
        self.lost.iter().any(|lost| !is_expired(lost.unconfirmed.sent.at, now_ms))
    }

    fn admitted(&self) -> impl Iterator<Item = &LostCharge> {
        self.lost.iter().filter(|lost| lost.unconfirmed.is_admitted)
    }

    fn requests(&self) -> i64 {
        self.batch.days.iter().map(|(_, count)| (*count).max(0)).sum()
    }
}

/// What the log of a key proves.
struct Evidence {
    data_set: u64,
    now_ms: u64,
    log_start_ms: u64,
    /// Requests that arrived after this time are in the log, if they were charged after the other.
    missing_until_ms: u64,
    log_lost_at_ms: u64,
    yesterday: UtcDay,
}

impl Evidence {
    fn proves(&self, lost: &LostCharge) -> bool {
        let sent = lost.unconfirmed.sent;
        lost.data_set == self.data_set
            && sent.arrival.0 <= self.now_ms
            && sent.arrival.0 > self.missing_until_ms
            && sent.at.0 > self.log_lost_at_ms
    }

    /// Whether an earlier attempt of the batch would be known.
    fn knows_attempts(&self, sent: &SentBatch) -> bool {
        sent.batch.first_attempt.is_none_or(|first| {
            sent.first_data_set == self.data_set
                && first.at.0 > self.log_start_ms
                && first.at.0 <= self.now_ms
                && self.now_ms < first.at.0 + DAY_MS
        })
    }
}

impl RandomWalk {
    pub async fn reconcile(&mut self, index: usize) {
        let node = self.pick_node();
        self.begin_batch(node, index);
        let mut attempt = self.lost_charge;
        attempt.at = LedgerTime(self.now_ms);
        let (is_request_lost, is_reply_lost) = (self.rng.u32(..10) == 0, self.rng.u32(..4) == 0);
        if !is_request_lost && self.send_batch(node, index).await && !is_reply_lost {
            self.nodes[node].pending[index].batch = None;
        } else if let Some(sent) = &mut self.nodes[node].pending[index].batch
            && sent.batch.first_attempt.is_none()
        {
            sent.batch.first_attempt = Some(attempt);
            sent.first_data_set = self.incarnation.data_set;
        }
    }

    /// Lost charges that are reconciled soon enough to be proven.
    pub async fn lose_and_reconcile(&mut self, index: usize) {
        for _ in 0..self.rng.usize(1..5) {
            self.lose_charge(index).await;
            self.wait(..400);
        }
        self.deliver_held().await;
        self.wait(900..5_000);
        for _ in 0..NODES {
            self.reconcile(index).await;
        }
    }

    fn begin_batch(&mut self, node: usize, index: usize) {
        let (now_ms, key) = (self.now_ms, &self.keys[index]);
        let takes_all = self.rng.u32(..5) == 0;
        let node = &mut self.nodes[node];
        let pending = &mut node.pending[index];
        if pending.batch.is_some() {
            return;
        }
        let is_ready = |lost: &LostCharge| takes_all || is_expired(lost.unconfirmed.sent.at, now_ms);
        let (lost, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut pending.lost).into_iter().partition(is_ready);
        pending.lost = rest;
        let (days, recent) = (std::mem::take(&mut pending.days), std::mem::take(&mut pending.recent));
        if lost.is_empty() && days.is_empty() {
            return;
        }
        node.last_batch_number += 1;
        let (id, burst_epoch) = (key.key.id, key.stored.burst_epoch);
        let is_paused = self.rng.u32(..100) == 0;
        let counts = [self.rng.u16(1..8); 60];
        let pause = is_paused.then_some(KeyPause { key: id, burst_epoch, at_ms: now_ms, counts });
        let batch = ReconcileBatch {
            key: id,
            number: node.last_batch_number,
            burst_epoch,
            days: days.into_iter().collect(),
            recent: recent[recent.len().saturating_sub(key.stored.burst_limit)..].to_vec(),
            unconfirmed: lost.iter().map(|lost| lost.unconfirmed).collect(),
            pause,
            first_attempt: None,
        };
        pending.batch = Some(SentBatch { batch, lost, first_data_set: 0, is_counted: false });
    }

    /// Sends a batch, with a fill if needed. Returns whether it is done.
    async fn send_batch(&mut self, node: usize, index: usize) -> bool {
        let Some(mut sent) = self.nodes[node].pending[index].batch.take() else { return false };
        let mut is_done = false;
        for _ in 0..5 {
            let before = StoredKey::read(&mut self.connection, sent.batch.key).await;
            let ledger = Arc::clone(&self.nodes[node].ledger);
            let reconciled = ledger.reconcile(&sent.batch).await.expect("Redis answers");
            self.log_step(|| format!("node {node} reconciles {:?}: {reconciled:?}", sent.batch));
            let is_trusted = self.keys[index].is_trusted(self.incarnation);
            match reconciled {
                Reconciled::Unknown(_) if is_trusted => self.fail("the record is trusted"),
                Reconciled::Unknown(_) if self.keys[index].deleted => return true,
                Reconciled::Unknown(_) => self.fill(index).await,
                Reconciled::TooEarly => {
                    if sent.is_counted || !sent.may_be_applied(self.now_ms) {
                        self.fail("no charge may still be applied");
                    }
                    break;
                }
                Reconciled::Done { .. } if !is_trusted => self.fail("the record is not trusted"),
                Reconciled::Done { .. } if !sent.is_counted && sent.may_be_applied(self.now_ms) => {
                    self.fail("a charge may still be applied");
                }
                Reconciled::Done { unverifiable, .. } => {
                    let after = StoredKey::read(&mut self.connection, sent.batch.key).await;
                    self.check_batch(index, &sent, &before, &after, unverifiable);
                    if !sent.is_counted || before != after {
                        self.adopt(index, &sent, &after);
                    }
                    sent.is_counted = true;
                    is_done = true;
                    break;
                }
            }
        }
        self.nodes[node].pending[index].batch = Some(sent);
        is_done
    }

    fn evidence(&self, index: usize, before: &StoredKey) -> Evidence {
        let record = self.keys[index].record.as_ref().expect("record exists");
        let mut missing_until_ms = self.now_ms.max(before.newest_ms()) - WINDOW_MS;
        if before.log.len() >= record.key_record.burst_limit {
            missing_until_ms = before.log.iter().copied().fold(u64::MAX, u64::min).max(missing_until_ms);
        }
        let lost_with_log_ms = if before.log.is_empty() { before.newest_ms() } else { 0 };
        let [_, yesterday] = discard_future(before.days(), LedgerTime(self.now_ms).day());
        Evidence {
            data_set: self.incarnation.data_set,
            now_ms: self.now_ms,
            log_start_ms: record.log_start_ms,
            missing_until_ms,
            log_lost_at_ms: record.log_start_ms.max(lost_with_log_ms),
            yesterday: yesterday.day,
        }
    }

    fn check_batch(
        &mut self,
        index: usize,
        sent: &SentBatch,
        before: &StoredKey,
        after: &StoredKey,
        unverifiable: u64,
    ) {
        let added = self.added_requests(index, before, after);
        if sent.is_counted {
            if added != 0 {
                self.fail(&format!("a repeated batch was counted: {added}"));
            }
            self.count_event("repeated batch");
            return;
        }
        let evidence = self.evidence(index, before);
        let uncounted = signed(sent.admitted().filter(|lost| !lost.is_counted).count());
        let refused = sent.lost.iter().filter(|lost| lost.is_counted && !lost.unconfirmed.is_admitted);
        let taken_back: i64 = sent.batch.days.iter().map(|(_, count)| (-count).max(0)).sum();
        let most = sent.requests() + uncounted;
        let least = most - taken_back - signed(refused.count()) - i64::try_from(unverifiable).expect("small number");
        if !(least..=most).contains(&added) {
            self.fail(&format!(
                "{added} requests were counted, not {least} to {most}, unverifiable {unverifiable}\nbefore: {:?} {:?}\nafter: \
                 {:?} {:?}\nPostgreSQL: {:?}",
                before.days(),
                before.unflushed,
                after.days(),
                after.unflushed,
                self.keys[index].flushed
            ));
        }
        let allowed = self.unverifiable_max(sent, &evidence, &before.days());
        if i64::try_from(unverifiable).expect("small number") > allowed {
            self.fail(&format!("{unverifiable} charges are unverifiable, not at most {allowed}"));
        }
        self.check_log(index, sent, &evidence, before, after);
        self.count_event("batch");
        for lost in sent.admitted() {
            self.count_event(if evidence.proves(lost) { "proven charge" } else { "unverifiable" });
        }
    }

    /// How many requests were counted between two states of a key. A count may leave Redis if PostgreSQL has it.
    fn added_requests(&self, index: usize, before: &StoredKey, after: &StoredKey) -> i64 {
        let [before, mut counts] = [before, after].map(|stored| {
            let mut counts = stored.unflushed.clone();
            let columns = discard_future(stored.days(), LedgerTime(self.now_ms).day());
            columns.iter().for_each(|usage| raise_count(&mut counts, *usage));
            counts
        });
        for (&day, &count) in &before {
            if self.keys[index].flushed.get(&day).is_some_and(|flushed| *flushed >= count) {
                raise_count(&mut counts, DailyUsage { day, count });
            }
        }
        let sum =
            |counts: &Counts| counts.values().map(|count| i64::try_from(*count).expect("small number")).sum::<i64>();
        sum(&counts) - sum(&before)
    }

    /// How many charges of the batch nothing proves.
    fn unverifiable_max(&self, sent: &SentBatch, evidence: &Evidence, days: &DayColumns) -> i64 {
        if !evidence.knows_attempts(sent) {
            return sent.requests() + signed(sent.admitted().count());
        }
        let mut unverifiable = signed(sent.admitted().filter(|lost| !evidence.proves(lost)).count());
        // Days that the record has no column for. Each new day takes the older column.
        let clock_day = LedgerTime(self.now_ms).day();
        let [mut today, mut yesterday] = discard_future(*days, clock_day).map(|usage| usage.day);
        for (day, count) in &sent.batch.days {
            let day = if *day > clock_day { clock_day.max(today) } else { *day };
            if day > today {
                (today, yesterday) = (day, today);
            } else if day < today && day > yesterday {
                yesterday = day;
            } else if day < yesterday {
                unverifiable += (*count).max(0);
            }
        }
        let is_old = |lost: &&LostCharge| lost.unconfirmed.sent.at.day() < yesterday.max(evidence.yesterday);
        unverifiable + signed(sent.admitted().filter(|lost| evidence.proves(lost)).filter(is_old).count())
    }

    /// Requests that were not charged are in the log now, if they belong to the burst epoch.
    fn check_log(
        &mut self,
        index: usize,
        sent: &SentBatch,
        evidence: &Evidence,
        before: &StoredKey,
        after: &StoredKey,
    ) {
        let record = self.keys[index].record.as_ref().expect("record exists");
        let mut log = before.log.clone();
        if record.key_record.burst_epoch == sent.batch.burst_epoch && evidence.knows_attempts(sent) {
            let uncharged = |lost: &&LostCharge| evidence.proves(lost) && !lost.is_counted && !lost.is_rejected;
            let lost = sent.admitted().filter(uncharged).map(|lost| lost.unconfirmed.sent.arrival.0);
            let new: Vec<u64> = sent.batch.recent.iter().map(|charge| charge.at.0).chain(lost).collect();
            if !new.is_empty() {
                log.extend(new.iter().filter(|at| self.now_ms < **at + WINDOW_MS).map(|at| *at.min(&self.now_ms)));
                log.sort_unstable();
                log.drain(..log.len().saturating_sub(record.key_record.burst_limit));
            }
        }
        if log != after.log {
            self.fail(&format!("the model expects the log {log:?}\nbut it is {:?}", after.log));
        }
    }

    /// The model continues with the counts and the log of Redis.
    fn adopt(&mut self, index: usize, sent: &SentBatch, after: &StoredKey) {
        let key = &mut self.keys[index];
        let record = key.record.as_mut().expect("record exists");
        if !sent.is_counted {
            record.restart_lost_log(self.now_ms);
        }
        record.days = after.days();
        record.requests.clone_from(&after.log);
        record.newest_ms = after.newest_ms();
        record.is_log_deleted = after.log.is_empty();
        record.written_ms = self.now_ms;
        key.unflushed.clone_from(&after.unflushed);
        if let Some(pause) = &sent.batch.pause
            && record.key_record.burst_epoch == pause.burst_epoch
            && usize::from(pause.counts.iter().sum::<u16>()) > record.key_record.burst_limit
        {
            // A repeated batch pauses the key again, in the same burst epoch.
            assert!(after.pending.contains(&pause.burst_epoch), "the pause is kept until PostgreSQL has it");
            record.key_record.flags.paused = true;
            key.unrecorded_pauses.retain(|unrecorded| unrecorded.burst_epoch != pause.burst_epoch);
            key.unrecorded_pauses.push(pause.clone());
        }
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("small number")
}
