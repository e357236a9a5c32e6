//! What a node goes on from while the counter store does not answer: what it last saw of each key, and its own requests of the last
//! minute. It keeps both while all is well too. What it admits meanwhile is noted, and settled when the store is back.
//!
//! Deliberately absent: I/O. `api::recall` asks the durable store, `api::settle` brings the notes to the counter store.

mod breaker;
mod clock;
mod demo;
mod known;
mod unsettled;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::{Key, KeyId, Scope, Standing, Used};
use ledger::{ChargeName, Charged, Moment, NamedCharge, Verdict};
use quick_cache::sync::Cache;

pub(crate) use breaker::Breaker;
pub(crate) use clock::StoreClock;
pub(crate) use demo::DemoBook;
use known::Known;
pub(crate) use unsettled::Unsettled;

/// Bounds of going on without the counter store.
#[derive(Clone, Copy, Debug)]
pub struct FallbackBounds {
    /// Keys remembered, and keys whose requests wait to be settled.
    pub keys_max: usize,
    /// How long what a node knows is good for while neither store can be asked.
    pub recall_max: Duration,
    /// Verdicts missed in a row after which the counter store is left alone.
    pub failures_max: u32,
    /// Time for a question to the durable store, for which the caller has waited already.
    pub store_timeout: Duration,
}

/// How old what the durable store said may be while it can be asked again.
const FRESH_MAX: Duration = Duration::from_secs(1);
/// How long a durable store that did not answer is left alone.
const STORE_REST: Duration = Duration::from_millis(500);

pub(crate) struct Fallback {
    pub(crate) bounds: FallbackBounds,
    pub(crate) breaker: Breaker,
    pub(crate) clock: StoreClock,
    pub(crate) unsettled: Unsettled,
    pub(crate) demo: DemoBook,
    known: Cache<KeyId, Arc<Mutex<Known>>>,
    /// Raised when a key may have changed in the durable store.
    news: AtomicU64,
    /// Whether such news reaches this node now.
    follows_news: AtomicBool,
    /// When the durable store last failed to answer.
    store_missed_at: Mutex<Option<Instant>>,
}

impl Fallback {
    pub(crate) fn new(bounds: FallbackBounds) -> Self {
        Self {
            bounds,
            breaker: Breaker::new(bounds.failures_max),
            clock: StoreClock::start(),
            unsettled: Unsettled::new(bounds.keys_max),
            demo: DemoBook::default(),
            known: Cache::new(bounds.keys_max),
            news: AtomicU64::new(0),
            follows_news: AtomicBool::new(false),
            store_missed_at: Mutex::default(),
        }
    }

    /// Notes what the counter store has said of a key, and when that was heard.
    pub(crate) fn saw(&self, key: &Key, verdict: &Verdict, heard: Instant) {
        match verdict {
            Verdict::Admitted { scope, charged, window, .. } => {
                self.clock.tell(charged.now, heard);
                self.saw_admitted(key, *scope, charged, *window, heard);
            }
            Verdict::DaySpent { charged } => {
                self.clock.tell(charged.now, heard);
                self.with_known(key.id, |known| known.saw_spent(charged));
            }
            Verdict::Paused(_) | Verdict::PausedNow(_) => {
                self.with_known(key.id, |known| known.standing.marks.paused = true);
            }
            Verdict::Inactive(_) => {
                self.with_known(key.id, |known| known.standing.marks.deactivated = true);
            }
            Verdict::Unknown(_) | Verdict::WrongSecret(_) => {}
        }
    }

    fn saw_admitted(&self, key: &Key, scope: Scope, charged: &Charged, window: u64, heard: Instant) {
        let new = || Known::new(key, scope, charged, window, heard);
        let fresh = || Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(new())));
        let Ok(known) = self.known.get_or_insert_with(&key.id, fresh);
        lock(&known).saw_admitted(key, scope, charged, window, heard);
    }

    /// The count that the counter store last told of a key.
    pub(crate) fn used(&self, id: KeyId) -> Option<Used> {
        self.known.get(&id).and_then(|known| lock(&known).standing.used)
    }

    /// Notes a count that the counter store told when a batch was settled.
    pub(crate) fn counted(&self, id: KeyId, used: Used) {
        self.with_known(id, |known| known.standing.count_at_least(Some(used)));
    }

    fn with_known(&self, id: KeyId, act: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known.get(&id) {
            act(&mut lock(&known));
        }
    }

    /// A number that changes with every piece of news; to be read before the durable store is asked.
    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::Acquire)
    }

    /// Some key has changed: what the durable store said before is to be asked again.
    pub(crate) fn doubt(&self) {
        self.news.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether news reaches this node from now on; what it missed before is in doubt.
    pub(crate) fn follows_news(&self, follows: bool) {
        self.doubt();
        self.follows_news.store(follows, Ordering::Release);
    }

    /// Whether what is known of a key is as good as asking again.
    pub(crate) fn is_fresh(&self, id: KeyId) -> bool {
        let news = self.news();
        self.follows_news.load(Ordering::Acquire)
            && self.known.get(&id).is_some_and(|known| lock(&known).is_fresh(news, FRESH_MAX))
    }

    /// Whether what is known of a key is good enough while nobody can be asked.
    pub(crate) fn is_usable(&self, id: KeyId) -> bool {
        self.known.get(&id).is_some_and(|known| lock(&known).told_at.elapsed() < self.bounds.recall_max)
    }

    /// Whether the durable store is worth asking: one that failed is left alone for a moment, in which nobody waits for it.
    pub(crate) fn may_ask_store(&self) -> bool {
        let missed_at = *self.store_missed_at.lock().unwrap_or_else(PoisonError::into_inner);
        missed_at.is_none_or(|at| at.elapsed() >= STORE_REST)
    }

    pub(crate) fn store_missed(&self) {
        *self.store_missed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Learns what the durable store says of a key.
    pub(crate) fn learn(&self, standing: &Standing, news: u64) {
        let told = || Ok::<_, std::convert::Infallible>(Arc::new(Mutex::new(Known::told(standing.clone(), news))));
        let Ok(known) = self.known.get_or_insert_with(&standing.id, told);
        let mut known = lock(&known);
        known.learn(standing, news);
        if self.unsettled.paused_window(standing.id) == Some(known.standing.window) {
            known.standing.marks.paused = true;
        }
    }

    /// The durable store does not know the key.
    pub(crate) fn forget(&self, id: KeyId) {
        self.known.remove(&id);
        self.unsettled.discard(id);
    }

    /// Judges a request by what is known; what is admitted is noted at once, with when its charge was sent if that was not answered. `None` when
    /// nothing here can tell.
    pub(crate) fn judge(&self, key: &Key, name: ChargeName, unanswered_since: Option<Moment>) -> Option<Verdict> {
        let known = self.known.get(&key.id)?;
        let mut known = lock(&known);
        if !self.unsettled.has_room(key.id) {
            return None;
        }
        let counted = |day| self.unsettled.count(key.id, day);
        let verdict = known.judge(&key.digest, self.clock.now(), counted)?;
        if let Verdict::Admitted { charged, window, .. } = &verdict {
            let charge = NamedCharge { at: unanswered_since.unwrap_or(charged.now), name };
            let since = unanswered_since.map(|_| Instant::now());
            self.unsettled.admitted(key.id, *window, charged.day, charge, since);
        } else if let Verdict::PausedNow(pause) = &verdict {
            self.unsettled.paused(pause.clone());
        }
        Some(verdict)
    }

    /// Keys that the durable store has said are refused, for a counter store that may not have heard of it.
    pub(crate) fn refused(&self) -> Vec<Standing> {
        let standings = self.known.iter().filter_map(|(_, known)| {
            let known = lock(&known);
            let is_refused = known.standing.marks.deactivated || known.standing.marks.paused;
            (is_refused && known.is_told_by_store()).then(|| known.standing.clone())
        });
        standings.collect()
    }

    /// Whether any key is known.
    pub(crate) fn knows_any(&self) -> bool {
        !self.known.is_empty()
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
