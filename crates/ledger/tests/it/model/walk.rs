//! A walk: one random step after the other, on both sides.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use domain::{BURST_MAX, Key, KeyDigest, Pause, Standing};
use ledger::{ChargeName, Ledger, Verdict};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use testkit::{Clock, Redis};
use tokio::task::JoinSet;

use super::key::KeyModel;
use crate::stage::{MIDNIGHT_MS, Stage};

const KEYS: usize = 6;
const STEPS_TOLD: usize = 40;
const LOGS_CHECKED_EVERY: u32 = 300;

pub struct Walk {
    pub rng: fastrand::Rng,
    pub clock: Clock,
    pub now_ms: u64,
    pub connection: MultiplexedConnection,
    pub keys: Vec<KeyModel>,
    /// Requests and other acts.
    pub steps: u64,
    seed: u64,
    ledger: Arc<Ledger>,
    _redis: Redis,
    last_steps: VecDeque<String>,
    seen: BTreeMap<&'static str, u64>,
}

impl Walk {
    pub async fn open(seed: u64) -> Self {
        let (Stage { redis, ledger }, clock) = Stage::at_noon().await;
        let mut rng = fastrand::Rng::with_seed(seed);
        Self {
            connection: redis.connection().await.expect("a connection"),
            keys: (0..KEYS).map(|_| KeyModel::issue(&mut rng)).collect(),
            steps: 0,
            now_ms: MIDNIGHT_MS + 43_200_000,
            rng,
            clock,
            seed,
            ledger: Arc::new(ledger),
            _redis: redis,
            last_steps: VecDeque::new(),
            seen: BTreeMap::new(),
        }
    }

    pub async fn step(&mut self) {
        let index = self.pick();
        self.steps += 1;
        match self.rng.u32(..1000) {
            0..550 => self.request(index).await,
            550..553 => self.trickle(index).await,
            553..563 => self.hammer(index).await,
            563..840 => self.advance().await,
            840..850 => self.set_back_a_little().await,
            850..854 => self.set_back_far().await,
            854..959 => self.change(index).await,
            959..969 => self.deliver(index).await,
            969..979 => self.keys.iter_mut().for_each(KeyModel::roll_up),
            979..985 => self.sweep().await,
            985..990 => self.forget_yesterday(index).await,
            990..996 => self.delete_or_issue(index).await,
            996..999 => self.lose_record(index).await,
            _ => self.lose_everything().await,
        }
        if self.rng.u32(..LOGS_CHECKED_EVERY) == 0 {
            self.check_logs().await;
        }
    }

    /// Some keys are busier than others.
    pub fn pick(&mut self) -> usize {
        self.rng.usize(..KEYS).min(self.rng.usize(..KEYS))
    }

    async fn request(&mut self, index: usize) {
        let count = match self.rng.u32(..100) {
            0..87 => 1,
            87..98 => self.rng.usize(2..20),
            _ => self.rng.usize(200..=BURST_MAX + 30),
        };
        let key = &self.keys[index];
        let digest = match self.rng.u32(..20) {
            0 => KeyDigest::new([7; 32]),
            1 | 2 => key.old_key.unwrap_or(key.key).digest,
            _ => key.key.digest,
        };
        self.charge(index, digest, count).await;
    }

    /// Requests at an even pace around the one that a key can keep up for ever.
    async fn trickle(&mut self, index: usize) {
        let gap_ms = self.rng.u64(197..=203);
        let digest = self.keys[index].key.digest;
        for _ in 0..self.rng.usize(BURST_MAX..2 * BURST_MAX) {
            self.set_clock(self.now_ms + gap_ms);
            self.charge(index, digest, 1).await;
        }
    }

    /// Bursts that together come close to the limit, within a minute or two, on a clock that may be set back.
    async fn hammer(&mut self, index: usize) {
        if self.keys[index].gone {
            return;
        }
        self.keys[index].change(|truth| truth.marks.deactivated = false);
        self.keys[index].resume();
        let news = self.keys[index].truth.clone();
        self.publish(index, &news).await;
        for _ in 0..self.rng.usize(2..6) {
            let (digest, count) = (self.keys[index].key.digest, self.rng.usize(1..=BURST_MAX));
            self.charge(index, digest, count).await;
            match self.rng.u32(..8) {
                0 => self.set_back_a_little().await,
                1 => self.set_back_far().await,
                2..5 => {
                    let target = self.now_ms + self.rng.u64(..40_000);
                    self.set_clock(target);
                }
                _ => self.advance().await,
            }
        }
    }

    /// The same request so many times at the same moment: whichever comes first, the verdicts are the same.
    async fn charge(&mut self, index: usize, digest: KeyDigest, count: usize) {
        self.steps += count as u64 - 1;
        let key = Key { id: self.keys[index].key.id, digest };
        let now_ms = self.now_ms;
        self.note(|| format!("{count} × charge of key {index} with {digest:02x?} at {now_ms}"));
        let mut calls: JoinSet<_> = (0..count)
            .map(|_| {
                let ledger = Arc::clone(&self.ledger);
                async move { ledger.charge(&key, ChargeName::next()).await.expect("a verdict") }
            })
            .collect();
        let mut said = Vec::with_capacity(count);
        while let Some(verdict) = calls.join_next().await {
            said.push(verdict.expect("a call that ended"));
        }
        said.sort_by_key(place);
        let mut paused = None;
        for verdict in said {
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
        if self.keys[index].record.is_none() && !self.keys[index].gone {
            self.fill(index).await;
        }
    }

    fn compare(&mut self, expected: Option<&Verdict>, said: &Verdict) {
        *self.seen.entry(name(said)).or_default() += 1;
        let agree = match (expected, said) {
            (None, Verdict::Unknown(_)) => true,
            (expected, said) => expected == Some(said),
        };
        if !agree {
            self.fail(&format!("the model expects {expected:?}\nthe script says {said:?}"));
        }
    }

    /// Reads the durable store and fills, sometimes with changes in between.
    async fn fill(&mut self, index: usize) {
        let key = self.keys[index].key;
        let Verdict::Unknown(fence) = self.ledger.charge(&key, ChargeName::next()).await.expect("a verdict") else {
            self.fail("a record out of nowhere");
        };
        let standing = self.keys[index].truth.clone();
        let overtaken = self.rng.u32(..8) == 0;
        if overtaken {
            self.change(index).await;
            let news = self.keys[index].truth.clone();
            self.publish(index, &news).await;
        } else if self.rng.u32(..8) == 0 {
            // The change is under way while the old standing is written.
            self.keys[index].change(|truth| truth.daily_limit += 1);
        }
        self.note(|| format!("fill of key {index}, overtaken: {overtaken}"));
        if self.ledger.fill(&standing, &fence).await.expect("a fill") == overtaken {
            self.fail("a fill by the wrong fence");
        }
        if !overtaken {
            self.keys[index].fill(&standing, self.now_ms);
        }
    }

    async fn change(&mut self, index: usize) {
        if self.keys[index].gone {
            return;
        }
        let (key, rng, now_ms) = (&mut self.keys[index], &mut self.rng, self.now_ms);
        match rng.u32(..100) {
            0..14 => key.change(|truth| truth.marks.deactivated = true),
            14..36 => key.change(|truth| truth.marks.deactivated = false),
            36..80 => key.resume(),
            80..92 => key.change(|truth| truth.daily_limit = rng.u64(5..=400)),
            _ => {
                let until_s = now_ms / 1000 + rng.u64(..120);
                key.roll(rng, until_s);
            }
        }
        if rng.u32(..10) < 7 {
            self.deliver(index).await;
        }
    }

    /// Brings a change to the counter store: often the newest, sometimes an older one, sometimes twice.
    async fn deliver(&mut self, index: usize) {
        let mail = &mut self.keys[index].mail;
        let Some(newest) = mail.len().checked_sub(1) else { return };
        let chosen = if self.rng.u32(..4) > 0 { newest } else { self.rng.usize(..mail.len()) };
        let standing = if self.rng.u32(..5) > 0 { mail.swap_remove(chosen) } else { mail[chosen].clone() };
        self.publish(index, &standing).await;
    }

    async fn publish(&mut self, index: usize, standing: &Standing) {
        let now_ms = self.now_ms;
        self.note(|| format!("publish to key {index} at {now_ms}: {standing:?}"));
        self.ledger.publish(standing).await.expect("a publish");
        self.keys[index].publish(standing, self.now_ms);
    }

    async fn record_pause(&mut self, index: usize, pause: &Pause) {
        self.note(|| format!("pause of key {index} recorded"));
        self.keys[index].record_pause(pause);
        self.ledger.confirm(pause).await.expect("a confirmation");
    }

    async fn sweep(&mut self) {
        cmd("DEL").arg("i2:{sweep}:turn").exec_async(&mut self.connection).await.expect("a free turn");
        let mut swept = self.ledger.sweep(Duration::from_millis(10)).await.expect("a sweep");
        let mut expected: Vec<Pause> = self.keys.iter().flat_map(|key| key.pending.clone()).collect();
        for pauses in [&mut swept, &mut expected] {
            pauses.sort_by_key(|pause| (pause.key, pause.window));
        }
        if swept != expected {
            self.fail(&format!("the model expects {expected:?}\nthe sweep found {swept:?}"));
        }
        for pause in swept {
            let owner = self.keys.iter().position(|key| key.key.id == pause.key).expect("a key");
            self.record_pause(owner, &pause).await;
        }
    }

    async fn forget_yesterday(&mut self, index: usize) {
        self.note(|| format!("yesterday of key {index} forgotten"));
        self.ledger.forget_yesterday(self.keys[index].key.id).await.expect("an answer");
        if let Some(record) = &mut self.keys[index].record {
            record.yesterday = None;
        }
    }

    /// Deletes a key; one that is gone gives its place to a new one.
    async fn delete_or_issue(&mut self, index: usize) {
        if self.keys[index].gone {
            self.note(|| format!("key {index} issued"));
            if self.keys[index].pending.is_empty() {
                self.keys[index] = KeyModel::issue(&mut self.rng);
            }
        } else {
            self.note(|| format!("key {index} deleted"));
            self.ledger.forget(self.keys[index].key.id).await.expect("an answer");
            self.keys[index].gone = true;
            self.keys[index].record = None;
        }
    }

    pub async fn lose_record(&mut self, index: usize) {
        self.note(|| format!("record of key {index} lost"));
        let names = [self.name(index, "k").await, self.name(index, "log").await];
        cmd("DEL").arg(&names).exec_async(&mut self.connection).await.expect("a loss");
        self.keys[index].record = None;
    }

    async fn lose_everything(&mut self) {
        self.note(|| "everything lost".to_owned());
        cmd("FLUSHALL").exec_async(&mut self.connection).await.expect("a loss");
        for key in &mut self.keys {
            key.record = None;
            key.pending.clear();
        }
    }

    /// A name of a key in the counter store.
    pub async fn name(&mut self, index: usize, kind: &str) -> String {
        let pattern = format!("i2:*:k:{}", self.keys[index].key.id);
        let found: Vec<String> = cmd("KEYS").arg(pattern).query_async(&mut self.connection).await.expect("names");
        found.first().map_or_else(|| "none".to_owned(), |record| record.replace(":k:", &format!(":{kind}:")))
    }

    /// No log is longer than it has to be, and none holds anything but times and names of charges.
    pub async fn check_logs(&mut self) {
        let logs: Vec<String> = cmd("KEYS").arg("*:log:*").query_async(&mut self.connection).await.expect("names");
        for log in logs {
            let entries: Vec<String> =
                cmd("LRANGE").arg(log).arg(0).arg(-1).query_async(&mut self.connection).await.expect("a log");
            let plain = |entry: &String| entry.len() == 19 && entry.bytes().all(|digit| digit.is_ascii_digit());
            if entries.len() > BURST_MAX || !entries.iter().all(plain) {
                self.fail(&format!("a log of {} entries: {entries:?}", entries.len()));
            }
        }
    }

    /// A long walk has seen every verdict many times; otherwise it would prove little.
    pub fn check_seen(&self, steps: u64) {
        let verdicts = ["unknown", "wrong_secret", "inactive", "paused", "paused_now", "day_spent", "admitted"];
        for verdict in verdicts {
            let seen = self.seen.get(verdict).copied().unwrap_or_default();
            assert!(seen >= steps / 5_000, "{verdict} seen {seen} times only: {:?}", self.seen);
        }
    }

    pub fn note(&mut self, step: impl FnOnce() -> String) {
        if self.last_steps.len() == STEPS_TOLD {
            self.last_steps.pop_front();
        }
        self.last_steps.push_back(step());
    }

    fn fail(&self, difference: &str) -> ! {
        let mut told = String::new();
        for step in &self.last_steps {
            let _ = writeln!(told, "  {step}");
        }
        panic!("{difference}\nafter {} steps; IPSEITY_MODEL_SEED={}\nthe last steps:\n{told}", self.steps, self.seed)
    }
}

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown(_) => "unknown",
        Verdict::WrongSecret(_) => "wrong_secret",
        Verdict::Inactive(_) => "inactive",
        Verdict::Paused(_) => "paused",
        Verdict::PausedNow(_) => "paused_now",
        Verdict::DaySpent { .. } => "day_spent",
        Verdict::Admitted { .. } => "admitted",
    }
}

/// The order in which verdicts on the same request at the same moment can only come.
fn place(verdict: &Verdict) -> (u8, u64) {
    match verdict {
        Verdict::Admitted { charged, .. } => (0, charged.used),
        Verdict::DaySpent { .. } => (1, 0),
        Verdict::PausedNow(_) => (2, 0),
        Verdict::Paused(_) => (3, 0),
        Verdict::Unknown(_) | Verdict::WrongSecret(_) | Verdict::Inactive(_) => (4, 0),
    }
}
