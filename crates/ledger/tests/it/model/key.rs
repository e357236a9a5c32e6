//! One key by the specification: all request times, plain counts. Written without the script in view.

use domain::{BURST_MAX, BURST_WINDOW_S, ClearKey, Day, Key, KeyDigest, Marks, Pause, Retired, Scope, Standing, Used};
use ledger::{Charged, Moment, Verdict};

const BURST_WINDOW_MS: u64 = BURST_WINDOW_S * 1000;
const DAY_MS: u64 = 86_400_000;
/// A clock that goes back by no more than this is held.
const HELD_MS: u64 = 1_000;

/// What the durable store and the counter store should hold of a key.
pub struct KeyModel {
    pub key: Key,
    pub old_key: Option<Key>,
    /// What the durable store says; deleted there if `gone`.
    pub truth: Standing,
    pub gone: bool,
    /// Changes that have not reached the counter store yet.
    pub mail: Vec<Standing>,
    /// Pauses that the durable store does not know of yet.
    pub pending: Vec<Pause>,
    pub record: Option<Record>,
}

/// What the counter store should hold of a key.
pub struct Record {
    pub standing: Standing,
    /// When each request since the last resume was made.
    pub requests: Vec<u64>,
    /// Of the newest request, also when the log is gone.
    pub newest_ms: u64,
    pub today: Used,
    pub yesterday: Option<Used>,
    pub written_ms: u64,
}

impl KeyModel {
    pub fn issue(rng: &mut fastrand::Rng) -> Self {
        let key = ClearKey::mint(|| rng.u8(..)).key();
        let truth = Standing {
            id: key.id,
            digest: key.digest,
            retired: None,
            scope: Scope::ALL[rng.usize(..Scope::ALL.len())],
            daily_limit: rng.u64(5..=400),
            marks: Marks::default(),
            generation: 1,
            window: 1,
            used: None,
        };
        Self { key, old_key: None, truth, gone: false, mail: Vec::new(), pending: Vec::new(), record: None }
    }

    /// A change in the durable store; it reaches the counter store when it is published.
    pub fn change(&mut self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.truth);
        self.truth.generation += 1;
        self.mail.push(self.truth.clone());
    }

    pub fn resume(&mut self) {
        if self.truth.marks.paused {
            self.change(|truth| {
                truth.marks.paused = false;
                truth.window += 1;
            });
        }
    }

    /// The durable store learns of a pause; one of another window is old news.
    pub fn record_pause(&mut self, pause: &Pause) {
        self.pending.retain(|waiting| waiting != pause);
        if !self.gone && self.truth.window == pause.window && !self.truth.marks.paused {
            self.change(|truth| truth.marks.paused = true);
        }
    }

    pub fn roll(&mut self, rng: &mut fastrand::Rng, until_s: u64) {
        let new = ClearKey::roll(self.key.id, || rng.u8(..)).key();
        let old = std::mem::replace(&mut self.key, new);
        self.old_key = Some(old);
        self.change(|truth| {
            truth.digest = new.digest;
            truth.retired = Some(Retired { digest: old.digest, until_s });
        });
    }

    pub fn roll_up(&mut self) {
        if let Some(record) = &self.record
            && record.today.count > 0
        {
            self.truth.used = Some(self.truth.used.map_or(record.today, |known| newest(known, record.today)));
        }
    }

    fn is_pending(&self, window: u64) -> bool {
        self.pending.iter().any(|pause| pause.window == window)
    }

    pub fn fill(&mut self, standing: &Standing, now_ms: u64) {
        let mut written = standing.clone();
        written.marks.paused |= self.is_pending(standing.window);
        self.record = Some(Record {
            standing: written,
            requests: Vec::new(),
            newest_ms: 0,
            today: standing.used.unwrap_or(NEVER),
            yesterday: None,
            written_ms: now_ms,
        });
    }

    /// A change reaches the counter store, which only keeps newer ones of keys that it knows.
    pub fn publish(&mut self, standing: &Standing, now_ms: u64) {
        let pending = self.is_pending(standing.window);
        let Some(record) = &mut self.record else { return };
        if standing.generation <= record.standing.generation {
            return;
        }
        let paused_here = record.standing.marks.paused && record.standing.window == standing.window;
        if record.standing.window != standing.window {
            record.requests.clear();
            record.newest_ms = 0;
        }
        record.standing = standing.clone();
        record.standing.marks.paused |= paused_here || pending;
        record.today = newest(standing.used.unwrap_or(NEVER), record.today);
        record.written_ms = now_ms;
    }

    /// The verdict on a request; `None` when the counter store does not know the key.
    pub fn charge(&mut self, digest: KeyDigest, clock_ms: u64) -> Option<Verdict> {
        let record = self.record.as_mut()?;
        let standing = &mut record.standing;
        let retired = standing.retired.filter(|old| clock_ms < old.until_s * 1000).map(|old| old.digest);
        if digest != standing.digest && Some(digest) != retired {
            return Some(Verdict::WrongSecret(Moment(clock_ms)));
        }
        if standing.marks.deactivated {
            return Some(Verdict::Inactive(Moment(clock_ms)));
        }
        if standing.marks.paused {
            return Some(Verdict::Paused(Moment(clock_ms)));
        }

        let mut now_ms = clock_ms;
        if record.newest_ms > clock_ms + HELD_MS {
            record.requests.clear();
        } else {
            now_ms = now_ms.max(record.newest_ms);
        }
        let minute = record.requests.iter().rev().take_while(|&&at| now_ms < at + BURST_WINDOW_MS);
        if minute.clone().count() >= BURST_MAX {
            let mut counts = [0; BURST_WINDOW_S as usize];
            for at in minute.chain([&now_ms]) {
                counts[59 - usize::try_from((now_ms - at) / 1000).expect("a second of the minute")] += 1;
            }
            let pause = Pause { key: standing.id, window: standing.window, at_ms: now_ms, counts };
            standing.marks.paused = true;
            self.pending.push(pause.clone());
            return Some(Verdict::PausedNow(pause));
        }
        record.requests.push(now_ms);
        record.newest_ms = now_ms;
        Some(record.charge_day(now_ms, clock_ms))
    }
}

impl Record {
    fn charge_day(&mut self, now_ms: u64, clock_ms: u64) -> Verdict {
        let day = Day(u32::try_from(now_ms / DAY_MS).expect("a day"));
        if day > self.today.day {
            if self.today.count > 0 {
                self.yesterday = Some(self.today);
            }
            self.today = Used { day, count: 0 };
            self.written_ms = clock_ms;
        }
        let limit = self.standing.daily_limit;
        let spent = self.today.count >= limit;
        if !spent {
            self.today.count += 1;
        }
        let used = if spent { limit } else { self.today.count };
        let charged = Charged { now: Moment(now_ms), limit, day: self.today.day, used };
        if spent {
            Verdict::DaySpent { charged }
        } else {
            Verdict::Admitted {
                scope: self.standing.scope,
                charged,
                yesterday: self.yesterday,
                window: self.standing.window,
            }
        }
    }
}

const NEVER: Used = Used { day: Day(0), count: 0 };

/// The newer day; the greater count of the same day.
fn newest(one: Used, other: Used) -> Used {
    if (one.day, one.count) > (other.day, other.count) { one } else { other }
}
