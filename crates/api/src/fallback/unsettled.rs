//! Requests that were admitted without the counter store, until it has them in its books.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use domain::{BURST_MAX, Day, KeyId, Pause, Used};
use ledger::{Batch, LATE_MAX, NamedCharge};

/// Bounded by its keys: a key's page has its days and, at most, as many requests as the burst limit looks at.
pub(crate) struct Unsettled {
    pages: Mutex<HashMap<KeyId, Page>>,
    keys_max: usize,
}

#[derive(Default)]
struct Page {
    window: u64,
    days: BTreeMap<Day, u64>,
    recent: VecDeque<NamedCharge>,
    /// May have been charged: nobody can say before a late call cannot arrive any more.
    unanswered: Vec<(Instant, NamedCharge)>,
    pause: Option<Pause>,
    /// On its way, and the same until it is acknowledged: what is sent again must be what was sent before.
    sent: Option<Batch>,
}

impl Unsettled {
    pub(super) fn new(keys_max: usize) -> Self {
        Self { pages: Mutex::default(), keys_max }
    }

    /// Whether another request of this key can be noted.
    pub(super) fn has_room(&self, key: KeyId) -> bool {
        let pages = self.pages();
        pages.len() < self.keys_max || pages.contains_key(&key)
    }

    /// Notes a request; one whose charge may have been applied, with the time at which that became unknown.
    pub(super) fn admitted(
        &self,
        key: KeyId,
        window: u64,
        day: Day,
        charge: NamedCharge,
        unanswered_at: Option<Instant>,
    ) {
        let mut pages = self.pages();
        let page = pages.entry(key).or_default();
        page.enter(window);
        match unanswered_at {
            Some(at) => page.unanswered.push((at, charge)),
            None => {
                *page.days.entry(day).or_default() += 1;
                page.recent.push_back(charge);
                if page.recent.len() > BURST_MAX {
                    page.recent.pop_front();
                }
            }
        }
    }

    pub(super) fn paused(&self, pause: Pause) {
        let mut pages = self.pages();
        let page = pages.entry(pause.key).or_default();
        page.enter(pause.window);
        page.pause = Some(pause);
    }

    /// Requests of a day that the counter store's count does not hold yet.
    pub(super) fn count(&self, key: KeyId, day: Day) -> u64 {
        self.pages().get(&key).map_or(0, |page| page.count(day))
    }

    /// The window of a pause that no store knows of yet.
    pub(super) fn paused_window(&self, key: KeyId) -> Option<u64> {
        let pages = self.pages();
        let page = pages.get(&key)?;
        page.pause.as_ref().map(|pause| pause.window)
    }

    /// Pauses that may lack their row.
    pub(crate) fn pauses(&self) -> Vec<Pause> {
        self.pages().values().filter_map(|page| page.pause.clone()).collect()
    }

    /// The durable store has the pause, and brings it to the counter store.
    pub(crate) fn recorded(&self, pause: &Pause) {
        let mut pages = self.pages();
        if let Some(page) = pages.get_mut(&pause.key).filter(|page| page.pause.as_ref() == Some(pause)) {
            page.pause = None;
        }
    }

    /// All batches that can be sent now.
    pub(crate) fn take(&self) -> Vec<Batch> {
        let mut pages = self.pages();
        pages.retain(|_, page| !page.is_empty());
        pages.iter_mut().filter_map(|(key, page)| page.batch(*key)).collect()
    }

    /// A batch is in the books.
    pub(crate) fn done(&self, batch: &Batch) {
        if let Some(page) = self.pages().get_mut(&batch.key) {
            page.sent = None;
            if page.pause == batch.pause {
                page.pause = None;
            }
        }
    }

    /// Nobody waits for these any more: the key is gone.
    pub(crate) fn discard(&self, key: KeyId) {
        self.pages().remove(&key);
    }

    /// Requests that wait.
    pub(crate) fn total(&self) -> u64 {
        self.pages().values().map(Page::total).sum()
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<KeyId, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    /// Requests of another window are counted, and no longer looked at by the burst limit.
    fn enter(&mut self, window: u64) {
        if self.window != window {
            self.window = window;
            self.recent.clear();
            self.pause = None;
        }
    }

    fn batch(&mut self, key: KeyId) -> Option<Batch> {
        if self.sent.is_none() {
            let (told, waiting): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.unanswered).into_iter().partition(|(at, _)| at.elapsed() >= LATE_MAX);
            self.unanswered = waiting;
            if self.days.is_empty() && told.is_empty() && self.pause.is_none() {
                return None;
            }
            let days = std::mem::take(&mut self.days).into_iter().map(|(day, count)| Used { day, count });
            self.sent = Some(Batch {
                key,
                number: fastrand::u64(..),
                window: self.window,
                days: days.collect(),
                recent: std::mem::take(&mut self.recent).into(),
                unanswered: told.into_iter().map(|(_, charge)| charge).collect(),
                pause: self.pause.clone(),
            });
        }
        self.sent.clone()
    }

    fn count(&self, day: Day) -> u64 {
        let unanswered = self.unanswered.iter().map(|(_, charge)| charge);
        let sent_unanswered = self.sent.iter().flat_map(|batch| &batch.unanswered);
        let of_day = unanswered.chain(sent_unanswered).filter(|charge| charge.at.day() == day).count() as u64;
        let sent = self.sent.iter().flat_map(|batch| &batch.days).filter(|used| used.day == day);
        self.days.get(&day).copied().unwrap_or(0) + sent.map(|used| used.count).sum::<u64>() + of_day
    }

    fn total(&self) -> u64 {
        let sent = self
            .sent
            .iter()
            .map(|batch| batch.days.iter().map(|used| used.count).sum::<u64>() + batch.unanswered.len() as u64);
        self.days.values().sum::<u64>() + self.unanswered.len() as u64 + sent.sum::<u64>()
    }

    fn is_empty(&self) -> bool {
        self.total() == 0 && self.pause.is_none() && self.sent.is_none()
    }
}
