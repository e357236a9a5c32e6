//! A run of random steps, on the ledger and on the model.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::{ApiKey, BURST_LIMIT, KeyDigest, KeyPause, KeyRecord};
use ipseity_ledger::{ChargeId, Ledger, Verdict};
use ipseity_testkit::{Redis, TestClock};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::task::JoinSet;

use super::key::KeyModel;
use crate::fixture::{LedgerFixture, MIDNIGHT_MS};

const KEYS: usize = 6;
const STEPS_SHOWN: usize = 40;
const LOG_CHECK_INTERVAL: u32 = 300;

pub struct RandomWalk {
    pub rng: fastrand::Rng,
    pub clock: TestClock,
    pub now_ms: u64,
    pub connection: MultiplexedConnection,
    pub keys: Vec<KeyModel>,
    /// Requests and other steps.
    pub steps: u64,
    seed: u64,
    ledger: Arc<Ledger>,
    _redis: Redis,
    last_steps: VecDeque<String>,
    verdict_counts: BTreeMap<&'static str, u64>,
}

impl RandomWalk {
    pub async fn open(seed: u64) -> Self {
        let (LedgerFixture { redis, ledger }, clock) = LedgerFixture::at_noon().await;
        let mut rng = fastrand::Rng::with_seed(seed);
        Self {
            connection: redis.connect().await.expect("Redis accepts a connection"),
            keys: (0..KEYS).map(|_| KeyModel::issue(&mut rng)).collect(),
            steps: 0,
            now_ms: MIDNIGHT_MS + 43_200_000,
            rng,
            clock,
            seed,
            ledger: Arc::new(ledger),
            _redis: redis,
            last_steps: VecDeque::new(),
            verdict_counts: BTreeMap::new(),
        }
    }

    pub async fn step(&mut self) {
        let index = self.pick_key();
        self.steps += 1;
        match self.rng.u32(..1000) {
            0..550 => self.send_requests(index).await,
            550..553 => self.send_steady_requests(index).await,
            553..563 => self.send_bursts(index).await,
            563..840 => self.advance_clock().await,
            840..850 => self.set_clock_back_slightly().await,
            850..854 => self.set_clock_back_far().await,
            854..959 => self.change_key(index).await,
            959..969 => self.deliver_change(index).await,
            969..979 => self.keys.iter_mut().for_each(KeyModel::flush_usage),
            979..985 => self.record_all_pauses().await,
            985..990 => self.clear_yesterday(index).await,
            990..996 => self.delete_or_issue(index).await,
            996..999 => self.drop_record(index).await,
            _ => self.drop_everything().await,
        }
        if self.rng.u32(..LOG_CHECK_INTERVAL) == 0 {
            self.check_logs().await;
        }
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
        let latest = self.keys[index].stored.clone();
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

    /// Sends the same request several times at the same time. The set of verdicts does not depend on the order.
    async fn charge(&mut self, index: usize, digest: KeyDigest, count: usize) {
        self.steps += count as u64 - 1;
        let key = ApiKey { id: self.keys[index].key.id, digest };
        let now_ms = self.now_ms;
        self.log_step(|| format!("{count} × charge of key {index} with {digest:02x?} at {now_ms}"));
        let mut calls: JoinSet<_> = (0..count)
            .map(|_| {
                let ledger = Arc::clone(&self.ledger);
                async move { ledger.charge(&key, ChargeId::next()).await.expect("charge succeeds") }
            })
            .collect();
        let mut actual = Vec::with_capacity(count);
        while let Some(verdict) = calls.join_next().await {
            actual.push(verdict.expect("task ends"));
        }
        actual.sort_by_key(verdict_order);
        let mut paused = None;
        for verdict in actual {
            let expected = self.keys[index].charge(digest, self.now_ms);
            self.compare(expected.as_ref(), &verdict);
            if let Some(Verdict::PausedNow(pause)) = expected {
                paused = Some(pause);
            }
        }
        if let Some(pause) = paused
            && self.rng.bool()
        {
            self.record_pause(index, &pause).await;
        }
        if self.keys[index].record.is_none() && !self.keys[index].deleted {
            self.fill(index).await;
        }
    }

    fn compare(&mut self, expected: Option<&Verdict>, actual: &Verdict) {
        *self.verdict_counts.entry(verdict_name(actual)).or_default() += 1;
        let is_equal = match (expected, actual) {
            (None, Verdict::Unknown(_)) => true,
            (expected, actual) => expected == Some(actual),
        };
        if !is_equal {
            self.fail(&format!("the model expects {expected:?}\nthe script returned {actual:?}"));
        }
    }

    /// Fills the record from PostgreSQL, sometimes with changes in between.
    async fn fill(&mut self, index: usize) {
        let key = self.keys[index].key;
        let Verdict::Unknown(fence) = self.ledger.charge(&key, ChargeId::next()).await.expect("charge succeeds") else {
            self.fail("unexpected record");
        };
        let key_record = self.keys[index].stored.clone();
        let overtaken = self.rng.u32(..8) == 0;
        if overtaken {
            self.change_key(index).await;
            let latest = self.keys[index].stored.clone();
            self.publish(index, &latest).await;
        } else if self.rng.u32(..8) == 0 {
            // The change is committed, but not yet published.
            self.keys[index].change(|stored| stored.daily_limit += 1);
        }
        self.log_step(|| format!("fill of key {index}, overtaken: {overtaken}"));
        if self.ledger.fill(&key_record, &fence).await.expect("fill succeeds") == overtaken {
            self.fail("fill did not respect the fence");
        }
        if !overtaken {
            self.keys[index].fill(&key_record, self.now_ms);
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
            36..80 => key.resume(),
            80..92 => key.change(|stored| stored.daily_limit = rng.u64(5..=400)),
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
        self.ledger.publish(key_record).await.expect("publish succeeds");
        self.keys[index].publish(key_record, self.now_ms);
    }

    async fn record_pause(&mut self, index: usize, pause: &KeyPause) {
        self.log_step(|| format!("pause of key {index} recorded"));
        self.keys[index].record_pause(pause);
        self.ledger.mark_pause_recorded(pause).await.expect("pause is marked as recorded");
    }

    async fn record_all_pauses(&mut self) {
        cmd("DEL").arg("i2:{sweep}:turn").exec_async(&mut self.connection).await.expect("claim is deleted");
        let mut claimed = self.ledger.claim_unrecorded_pauses(Duration::from_millis(10)).await.expect("claim succeeds");
        let mut expected: Vec<KeyPause> = self.keys.iter().flat_map(|key| key.unrecorded_pauses.clone()).collect();
        for pauses in [&mut claimed, &mut expected] {
            pauses.sort_by_key(|pause| (pause.key, pause.burst_epoch));
        }
        if claimed != expected {
            self.fail(&format!("the model expects {expected:?}\nthe ledger returned {claimed:?}"));
        }
        for pause in claimed {
            let owner = self.keys.iter().position(|key| key.key.id == pause.key).expect("known key");
            self.record_pause(owner, &pause).await;
        }
    }

    async fn clear_yesterday(&mut self, index: usize) {
        self.log_step(|| format!("yesterday of key {index} cleared"));
        self.ledger.clear_yesterday(self.keys[index].key.id).await.expect("Redis answers");
        if let Some(record) = &mut self.keys[index].record {
            record.yesterday = None;
        }
    }

    /// Deletes a key, or replaces a deleted key by a new one.
    async fn delete_or_issue(&mut self, index: usize) {
        if self.keys[index].deleted {
            self.log_step(|| format!("key {index} issued"));
            if self.keys[index].unrecorded_pauses.is_empty() {
                self.keys[index] = KeyModel::issue(&mut self.rng);
            }
        } else {
            self.log_step(|| format!("key {index} deleted"));
            self.ledger.delete_key_record(self.keys[index].key.id).await.expect("Redis answers");
            self.keys[index].deleted = true;
            self.keys[index].record = None;
        }
    }

    pub async fn drop_record(&mut self, index: usize) {
        self.log_step(|| format!("record of key {index} deleted"));
        let redis_keys = [self.redis_key(index, "k").await, self.redis_key(index, "log").await];
        cmd("DEL").arg(&redis_keys).exec_async(&mut self.connection).await.expect("data is deleted");
        self.keys[index].record = None;
    }

    async fn drop_everything(&mut self) {
        self.log_step(|| "all data deleted".to_owned());
        cmd("FLUSHALL").exec_async(&mut self.connection).await.expect("data is deleted");
        for key in &mut self.keys {
            key.record = None;
            key.unrecorded_pauses.clear();
        }
    }

    /// The Redis key of an API key.
    pub async fn redis_key(&mut self, index: usize, kind: &str) -> String {
        let pattern = format!("i2:*:k:{}", self.keys[index].key.id);
        let found: Vec<String> =
            cmd("KEYS").arg(pattern).query_async(&mut self.connection).await.expect("KEYS succeeds");
        found.first().map_or_else(|| "none".to_owned(), |record| record.replace(":k:", &format!(":{kind}:")))
    }

    /// A log has at most 300 entries, each with a time and a charge id.
    pub async fn check_logs(&mut self) {
        let log_keys: Vec<String> =
            cmd("KEYS").arg("*:log:*").query_async(&mut self.connection).await.expect("KEYS succeeds");
        for log_key in log_keys {
            let entries: Vec<String> =
                cmd("LRANGE").arg(log_key).arg(0).arg(-1).query_async(&mut self.connection).await.expect("log exists");
            let is_valid = |entry: &String| entry.len() == 19 && entry.bytes().all(|digit| digit.is_ascii_digit());
            if entries.len() > BURST_LIMIT || !entries.iter().all(is_valid) {
                self.fail(&format!("log with {} entries: {entries:?}", entries.len()));
            }
        }
    }

    /// Checks that every verdict occurred often enough.
    pub fn check_verdict_counts(&self, steps: u64) {
        let verdicts = ["unknown", "wrong_secret", "inactive", "paused", "paused_now", "quota_exhausted", "admitted"];
        for verdict in verdicts {
            let count = self.verdict_counts.get(verdict).copied().unwrap_or_default();
            assert!(count >= steps / 5_000, "only {count} × {verdict}: {:?}", self.verdict_counts);
        }
    }

    pub fn log_step(&mut self, step: impl FnOnce() -> String) {
        if self.last_steps.len() == STEPS_SHOWN {
            self.last_steps.pop_front();
        }
        self.last_steps.push_back(step());
    }

    fn fail(&self, difference: &str) -> ! {
        let mut steps = String::new();
        for step in &self.last_steps {
            let _ = writeln!(steps, "  {step}");
        }
        panic!("{difference}\nafter {} steps; IPSEITY_MODEL_SEED={}\nlast steps:\n{steps}", self.steps, self.seed)
    }
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown(_) => "unknown",
        Verdict::WrongSecret(_) => "wrong_secret",
        Verdict::Inactive(_) => "inactive",
        Verdict::Paused(_) => "paused",
        Verdict::PausedNow(_) => "paused_now",
        Verdict::QuotaExhausted { .. } => "quota_exhausted",
        Verdict::Admitted { .. } => "admitted",
    }
}

/// The only possible order of the verdicts on equal requests at the same time.
fn verdict_order(verdict: &Verdict) -> (u8, u64) {
    match verdict {
        Verdict::Admitted { quota, .. } => (0, quota.used),
        Verdict::QuotaExhausted { .. } => (1, 0),
        Verdict::PausedNow(_) => (2, 0),
        Verdict::Paused(_) => (3, 0),
        Verdict::Unknown(_) | Verdict::WrongSecret(_) | Verdict::Inactive(_) => (4, 0),
    }
}
