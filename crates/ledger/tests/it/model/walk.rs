//! A run of random steps, on the ledger and on the model.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::{ApiKey, BURST_LIMIT, KeyDigest, KeyPause, KeyRecord};
use ipseity_ledger::{
    AppliedRestrictions, Arrival, ChargeId, Ledger, LedgerOptions, LedgerTime, SentCharge, TrustedStores,
    UnflushedUsage, Verdict,
};
use ipseity_testkit::{Redis, TestClock};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;

use super::calls::{RawCalls, redis_key};
use super::incarnation::ModelIncarnation;
use super::key::{BURST_LIMIT_HIGHEST, KeyModel, random_burst_limit};
use super::lost::HeldCharge;
use super::reconcile::{NodeModel, PendingModel};
use crate::fixture::{LedgerFixture, NOON, REQUEST_TIMEOUT, lost_charge};

const KEYS: usize = 8;
/// Keys from this one on can be restricted. Their charges are not lost: a key whose charges are refused while the clock is
/// set back does not notice it, and what is lost then is not covered.
const RESTRICTED_KEYS: usize = 5;
pub const NODES: usize = 2;
const STEPS_SHOWN: usize = 40;
const LOG_CHECK_INTERVAL: u32 = 300;

pub struct RandomWalk {
    pub rng: fastrand::Rng,
    pub clock: TestClock,
    pub now_ms: u64,
    pub redis: Redis,
    pub connection: MultiplexedConnection,
    pub keys: Vec<KeyModel>,
    pub nodes: Vec<NodeModel>,
    /// The database that all nodes use.
    pub store: Arc<TrustedStores>,
    pub incarnation: ModelIncarnation,
    pub calls: RawCalls,
    /// A lost charge to the current data set, of which copies with other times are made.
    pub lost_charge: SentCharge,
    pub held: Vec<HeldCharge>,
    pub unconfirmed_sweeps: Vec<Vec<UnflushedUsage>>,
    /// Requests and other steps.
    pub steps: u64,
    /// How often each verdict and each other event occurred.
    pub event_counts: BTreeMap<&'static str, u64>,
    seed: u64,
    last_steps: VecDeque<String>,
}

impl RandomWalk {
    pub async fn open(seed: u64) -> Self {
        let (LedgerFixture { redis, .. }, clock) = LedgerFixture::at_noon().await;
        let mut rng = fastrand::Rng::with_seed(seed);
        let store = Arc::new(TrustedStores::default());
        let options = LedgerOptions {
            trusted: Arc::clone(&store),
            clock_fall_max: Duration::ZERO,
            ..LedgerOptions::new(redis.url(), REQUEST_TIMEOUT)
        };
        let node = || NodeModel {
            ledger: Arc::new(Ledger::new(&options).expect("valid URL")),
            pending: (0..KEYS).map(|_| PendingModel::default()).collect(),
            last_batch_number: 0,
        };
        let nodes: Vec<_> = (0..NODES).map(|_| node()).collect();
        Self {
            connection: redis.connect().await.expect("Redis accepts a connection"),
            keys: (0..KEYS).map(|_| KeyModel::issue(&mut rng)).collect(),
            steps: 0,
            now_ms: NOON.0,
            calls: RawCalls::capture(&redis, &nodes[0].ledger).await,
            lost_charge: lost_charge(&redis, NOON).await,
            nodes,
            store,
            incarnation: ModelIncarnation { data_set: 0, database: None },
            rng,
            clock,
            seed,
            redis,
            held: Vec::new(),
            unconfirmed_sweeps: Vec::new(),
            last_steps: VecDeque::new(),
            event_counts: BTreeMap::new(),
        }
    }

    pub async fn step(&mut self) {
        let index = self.pick_key();
        self.steps += 1;
        match self.rng.u32(..10_000) {
            0..4_300 => self.send_requests(index).await,
            4_300..4_320 => self.send_steady_requests(index).await,
            4_320..4_400 => self.send_bursts(index).await,
            4_400..5_100 => self.lose_charge(index).await,
            5_100..5_300 => self.deliver_held().await,
            5_300..5_600 => self.admit_locally(index),
            5_600..5_650 => self.refuse_charge(index).await,
            5_650..6_150 => self.reconcile(index).await,
            6_150..6_550 => self.lose_and_reconcile(index).await,
            6_550..8_400 => self.advance_clock().await,
            8_400..8_500 => self.set_clock_back_slightly().await,
            8_500..8_540 => self.set_clock_back_far().await,
            8_540..8_550 => self.run_clock_ahead(index).await,
            8_550..9_550 => self.change_key(index).await,
            9_550..9_650 => self.deliver_change(index).await,
            9_650..9_840 => self.sweep().await,
            9_840..9_900 => self.delete_or_issue(index).await,
            9_900..9_930 => self.drop_record(index).await,
            9_930..9_960 => self.invalidate(index).await,
            9_960..9_990 => self.replace_database(),
            9_990..9_999 => self.drop_everything().await,
            _ => self.restart_redis().await,
        }
        if self.rng.u32(..LOG_CHECK_INTERVAL) == 0 {
            self.check_logs().await;
        }
    }

    pub fn pick_node(&mut self) -> usize {
        self.rng.usize(..NODES)
    }

    pub fn any_ledger(&mut self) -> Arc<Ledger> {
        Arc::clone(&self.nodes[self.rng.usize(..NODES)].ledger)
    }

    /// Some keys are busier than others.
    pub fn pick_key(&mut self) -> usize {
        self.rng.usize(..KEYS).min(self.rng.usize(..KEYS))
    }

    async fn send_requests(&mut self, index: usize) {
        let count = match self.rng.u32(..100) {
            0..87 => 1,
            87..98 => self.rng.usize(2..20),
            _ => self.rng.usize(200..=BURST_LIMIT + 30),
        };
        let key = &self.keys[index];
        let digest = match self.rng.u32(..20) {
            0 => KeyDigest::new([7; 32]),
            1 | 2 => key.previous_key.unwrap_or(key.key).digest,
            _ => key.key.digest,
        };
        self.charge(index, digest, count).await;
    }

    /// Requests at an even rate, near the highest one that never exceeds the burst limit.
    async fn send_steady_requests(&mut self, index: usize) {
        let gap_ms = self.rng.u64(197..=203);
        let digest = self.keys[index].key.digest;
        for _ in 0..self.rng.usize(BURST_LIMIT..2 * BURST_LIMIT) {
            self.set_clock(self.now_ms + gap_ms);
            self.charge(index, digest, 1).await;
        }
    }

    /// Bursts that together come close to the limit, within a minute or two. The clock may be set back.
    async fn send_bursts(&mut self, index: usize) {
        if self.keys[index].deleted {
            return;
        }
        self.keys[index].change(|stored| stored.flags.deactivated = false);
        self.keys[index].resume();
        let latest = self.keys[index].stored_record(self.now_ms);
        self.publish(index, &latest).await;
        for _ in 0..self.rng.usize(2..6) {
            let (digest, count) = (self.keys[index].key.digest, self.rng.usize(1..=BURST_LIMIT));
            self.charge(index, digest, count).await;
            match self.rng.u32(..8) {
                0 => self.set_clock_back_slightly().await,
                1 => self.set_clock_back_far().await,
                2..5 => {
                    let target_ms = self.now_ms + self.rng.u64(..40_000);
                    self.set_clock(target_ms);
                }
                _ => self.advance_clock().await,
            }
        }
    }

    /// The restrictions that a node applied: mostly the newest, sometimes older or newer ones than Redis has.
    pub fn any_restrictions(&mut self, index: usize) -> AppliedRestrictions {
        if !is_restricted(index) {
            return AppliedRestrictions::default();
        }
        let current = self.keys[index].restriction_version();
        let version = match self.rng.u32(..10) {
            0 => 0,
            1 => current.saturating_sub(1),
            2 => current + 1,
            _ => current,
        };
        AppliedRestrictions { version, is_refused: self.rng.u32(..3) == 0 }
    }

    /// How long before its charge a request arrived. Sometimes it waits longer than charges that are sent after it.
    pub fn arrival_delay_ms(&mut self) -> u64 {
        match self.rng.u32(..10) {
            0..5 => 0,
            5..9 => self.rng.u64(..100),
            _ => self.rng.u64(..5_000),
        }
    }

    /// Sends the same request several times at the same time. The set of verdicts does not depend on the order.
    pub async fn charge(&mut self, index: usize, digest: KeyDigest, count: usize) {
        self.steps += count as u64 - 1;
        let key = ApiKey { id: self.keys[index].key.id, digest };
        let now_ms = self.now_ms;
        let arrival = LedgerTime(now_ms - self.arrival_delay_ms());
        let applied = self.any_restrictions(index);
        self.log_step(|| {
            format!("{count} × charge of key {index} with {digest:02x?} at {now_ms}, arrived {arrival:?}, {applied:?}")
        });
        let mut calls: JoinSet<_> = (0..count)
            .map(|_| {
                let ledger = self.any_ledger();
                let arrival = Arrival::AtOwner(arrival);
                async move { ledger.charge(&key, ChargeId::next(), arrival, applied).await.expect("charge succeeds") }
            })
            .collect();
        let mut actual = Vec::with_capacity(count);
        while let Some(verdict) = calls.join_next().await {
            actual.push(verdict.expect("task ends"));
        }
        actual.sort_by_key(verdict_order);
        let mut paused = None;
        for verdict in actual {
            let expected = self.keys[index].charge(digest, self.incarnation, arrival.0, self.now_ms, applied);
            self.compare(expected.as_ref(), &verdict);
            if matches!(expected, Some(Verdict::PausedNow { .. })) {
                paused = self.keys[index].unrecorded_pauses.last().cloned();
            }
        }
        if let Some(pause) = paused {
            let evidence = self.any_ledger().pause_evidence(key.id, pause.burst_epoch, pause.at_ms).await;
            if evidence.as_ref().ok() != Some(&pause) {
                self.fail(&format!("the model expects {pause:?}\nthe ledger returned {evidence:?}"));
            }
            if self.rng.bool() {
                self.record_pause(index, &pause).await;
            }
        }
        if !self.keys[index].is_trusted(self.incarnation) && !self.keys[index].deleted {
            self.fill(index).await;
        }
    }

    pub fn compare(&mut self, expected: Option<&Verdict>, actual: &Verdict) {
        self.count_event(verdict_name(actual));
        let is_equal = match (expected, actual) {
            (None, Verdict::Unknown(_)) => true,
            (expected, actual) => expected == Some(actual),
        };
        if !is_equal {
            self.fail(&format!("the model expects {expected:?}\nthe script returned {actual:?}"));
        }
    }

    /// Fills the record from PostgreSQL, sometimes with changes in between.
    pub async fn fill(&mut self, index: usize) {
        let key = self.keys[index].key;
        let ledger = self.any_ledger();
        let arrival = Arrival::AtOwner(LedgerTime(self.now_ms));
        let verdict = ledger
            .charge(&key, ChargeId::next(), arrival, AppliedRestrictions::default())
            .await
            .expect("charge succeeds");
        let Verdict::Unknown(fence) = verdict else { self.fail("unexpected record") };
        let mut key_record = self.keys[index].stored_record(self.now_ms);
        if self.rng.u32(..8) == 0 {
            // The node read PostgreSQL before the last flush.
            key_record.usage.iter_mut().for_each(|usage| usage.count = self.rng.u64(1..=usage.count));
        }
        let overtaken = self.rng.u32(..8) == 0;
        if overtaken {
            self.change_key(index).await;
            let latest = self.keys[index].stored_record(self.now_ms);
            self.publish(index, &latest).await;
        } else if self.rng.u32(..8) == 0 {
            // The change is committed, but not yet published.
            self.keys[index].change(|stored| stored.daily_limit += 1);
        }
        self.log_step(|| format!("fill of key {index}, overtaken: {overtaken}"));
        self.adopt_unflushed(index).await;
        if ledger.fill(&key_record, &fence).await.expect("fill succeeds") == overtaken {
            self.fail("fill did not respect the fence");
        }
        if !overtaken {
            self.keys[index].fill(&key_record, self.incarnation, self.now_ms);
        }
    }

    async fn change_key(&mut self, index: usize) {
        if self.keys[index].deleted {
            return;
        }
        let (key, rng, now_ms) = (&mut self.keys[index], &mut self.rng, self.now_ms);
        match rng.u32(..100) {
            0..14 => key.change(|stored| stored.flags.deactivated = true),
            14..36 => key.change(|stored| stored.flags.deactivated = false),
            60..80 if is_restricted(index) => {
                let expires_at_s = (rng.u32(..4) == 0).then(|| now_ms / 1000 + rng.u64(..100));
                key.restrict(expires_at_s);
            }
            36..80 => key.resume(),
            80..86 => key.change(|stored| stored.daily_limit = rng.u64(5..=400)),
            86..92 => key.change(|stored| stored.burst_limit = random_burst_limit(rng)),
            _ => {
                let until_s = now_ms / 1000 + rng.u64(..120);
                key.rotate(rng, until_s);
            }
        }
        if rng.u32(..10) < 7 {
            self.deliver_change(index).await;
        }
    }

    /// Publishes a change: often the newest, sometimes an older one, sometimes twice.
    async fn deliver_change(&mut self, index: usize) {
        let undelivered = &mut self.keys[index].undelivered;
        let Some(newest) = undelivered.len().checked_sub(1) else { return };
        let chosen = if self.rng.u32(..4) > 0 { newest } else { self.rng.usize(..undelivered.len()) };
        let key_record =
            if self.rng.u32(..5) > 0 { undelivered.swap_remove(chosen) } else { undelivered[chosen].clone() };
        self.publish(index, &key_record).await;
    }

    async fn publish(&mut self, index: usize, key_record: &KeyRecord) {
        let now_ms = self.now_ms;
        self.log_step(|| format!("publish to key {index} at {now_ms}: {key_record:?}"));
        let published = self.any_ledger().publish(key_record).await.expect("publish succeeds");
        let expected = self.keys[index].publish(key_record, self.incarnation, self.now_ms);
        if published != expected {
            self.fail(&format!("the model expects {expected:?}\nthe ledger returned {published:?}"));
        }
    }

    pub async fn record_pause(&mut self, index: usize, pause: &KeyPause) {
        self.log_step(|| format!("pause of key {index} recorded"));
        self.keys[index].record_pause(pause);
        self.any_ledger().mark_pause_recorded(pause).await.expect("pause is marked as recorded");
    }

    /// Deletes a key, or replaces a deleted key by a new one.
    async fn delete_or_issue(&mut self, index: usize) {
        if self.keys[index].deleted {
            self.log_step(|| format!("key {index} issued"));
            if self.keys[index].unrecorded_pauses.is_empty() {
                self.keys[index] = KeyModel::issue(&mut self.rng);
                self.held.clear();
                self.nodes.iter_mut().for_each(|node| node.pending[index] = PendingModel::default());
            }
        } else if self.rng.u32(..4) == 0 {
            self.log_step(|| format!("key {index} deleted"));
            let id = self.keys[index].key.id;
            self.any_ledger().delete_key_record(id).await.expect("Redis answers");
            self.keys[index].deleted = true;
            self.forget_record(index);
        }
    }

    pub async fn drop_record(&mut self, index: usize) {
        self.log_step(|| format!("record of key {index} deleted"));
        let redis_keys = ["k", "log"].map(|kind| redis_key(self.keys[index].key.id, kind));
        cmd("DEL").arg(&redis_keys).exec_async(&mut self.connection).await.expect("data is deleted");
        self.forget_record(index);
    }

    pub async fn drop_everything(&mut self) {
        self.log_step(|| "all data deleted".to_owned());
        cmd("FLUSHALL").exec_async(&mut self.connection).await.expect("data is deleted");
        for index in 0..KEYS {
            self.forget_record(index);
            self.keys[index].unrecorded_pauses.clear();
            self.keys[index].unflushed.clear();
        }
    }

    fn forget_record(&mut self, index: usize) {
        self.keys[index].record = None;
        self.nodes.iter_mut().for_each(|node| node.pending[index].drop_future(self.now_ms));
    }

    /// A log has at most as many entries as the highest limit, each with a time and a charge id.
    pub async fn check_logs(&mut self) {
        let log_keys: Vec<String> =
            cmd("KEYS").arg("*:log:*").query_async(&mut self.connection).await.expect("KEYS succeeds");
        for log_key in log_keys {
            let entries: Vec<String> =
                cmd("LRANGE").arg(log_key).arg(0).arg(-1).query_async(&mut self.connection).await.expect("log exists");
            let is_valid = |entry: &String| entry.len() == 19 && entry.bytes().all(|digit| digit.is_ascii_digit());
            if entries.len() > BURST_LIMIT_HIGHEST || !entries.iter().all(is_valid) {
                self.fail(&format!("log with {} entries: {entries:?}", entries.len()));
            }
        }
    }

    pub fn count_event(&mut self, name: &'static str) {
        *self.event_counts.entry(name).or_default() += 1;
    }

    /// Checks that every verdict and every event occurred often enough.
    pub fn check_event_counts(&self, steps: u64) {
        let frequent = ["unknown", "wrong_secret", "inactive", "paused", "paused_now", "quota_exhausted", "admitted"];
        let frequent = frequent.into_iter().chain(["batch", "repeated batch", "lost charge", "late delivery", "sweep"]);
        let frequent = frequent.chain(["proven charge", "unverifiable"]).map(|name| (name, steps / 5_000));
        let rare = ["failover", "clock ahead", "delayed delivery", "expired", "outdated", "restricted"]
            .map(|name| (name, steps / 20_000));
        for (name, least) in frequent.chain(rare) {
            let count = self.event_counts.get(name).copied().unwrap_or_default();
            assert!(count >= least, "only {count} × {name}: {:?}", self.event_counts);
        }
    }

    pub fn log_step(&mut self, step: impl FnOnce() -> String) {
        if self.last_steps.len() == STEPS_SHOWN {
            self.last_steps.pop_front();
        }
        self.last_steps.push_back(step());
    }

    pub fn fail(&self, difference: &str) -> ! {
        let mut steps = String::new();
        for step in &self.last_steps {
            let _ = writeln!(steps, "  {step}");
        }
        panic!("{difference}\nafter {} steps; IPSEITY_MODEL_SEED={}\nlast steps:\n{steps}", self.steps, self.seed)
    }
}

/// Whether a key can be restricted.
pub fn is_restricted(index: usize) -> bool {
    index >= RESTRICTED_KEYS
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown(_) => "unknown",
        Verdict::WrongSecret(_) => "wrong_secret",
        Verdict::Inactive(_) => "inactive",
        Verdict::Paused { .. } => "paused",
        Verdict::PausedNow { .. } => "paused_now",
        Verdict::QuotaExhausted { .. } => "quota_exhausted",
        Verdict::Admitted { .. } => "admitted",
        Verdict::Expired(_) => "expired",
        Verdict::Outdated { .. } => "outdated",
        Verdict::Restricted(_) => "restricted",
    }
}

/// The only possible order of the verdicts on equal requests at the same time.
fn verdict_order(verdict: &Verdict) -> (u8, u64) {
    match verdict {
        Verdict::Admitted { quota, .. } => (0, quota.used),
        Verdict::QuotaExhausted { .. } => (1, 0),
        Verdict::PausedNow { .. } => (2, 0),
        Verdict::Paused { .. } => (3, 0),
        Verdict::Unknown(_)
        | Verdict::WrongSecret(_)
        | Verdict::Inactive(_)
        | Verdict::Expired(_)
        | Verdict::Outdated { .. }
        | Verdict::Restricted(_) => (4, 0),
    }
}
