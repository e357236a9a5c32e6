//! What this node has admitted and refused since the last roll-up. Admitted counts are absolute, as the verdicts gave them: rolling one up
//! twice, late or out of order does no harm. Refusals are sums, lost with the node if it dies before the next roll-up.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Mutex;
use std::sync::PoisonError;

use domain::{Day, KeyId, Used};
use foldhash::fast::RandomState;
use store::{RefusedCount, RefusedReason, RolledUp};

/// Counts that wait to be rolled up.
pub struct Tally {
    waiting: Mutex<Taken>,
    keys_max: usize,
}

/// Counts taken out to be rolled up; put back if that fails.
#[derive(Default)]
pub struct Taken {
    /// The one that every request touches. Ids are our own random ones: nobody outside can have them collide.
    admitted: HashMap<(KeyId, Day), u64, RandomState>,
    refused: HashMap<(KeyId, Day, RefusedReason), u64>,
    demo: HashMap<Day, DemoCount>,
    yesterdays: HashSet<KeyId>,
    unheard: HashSet<KeyId>,
}

#[derive(Clone, Copy, Default)]
struct DemoCount {
    admitted: u64,
    refused: u64,
}

impl Tally {
    /// Holds at most `keys_max` counts between two roll-ups; a key beyond that is rolled up with a later request.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self { waiting: Mutex::default(), keys_max }
    }

    pub(crate) fn admitted(&self, key: KeyId, used: Used) {
        self.with(|waiting, keys_max| raise(&mut waiting.admitted, (key, used.day), used.count, keys_max));
    }

    /// Yesterday's last count, which the counter store keeps until it is told that it was rolled up.
    pub(crate) fn yesterday(&self, key: KeyId, used: Used) {
        self.admitted(key, used);
        self.with(|waiting, keys_max| {
            if waiting.yesterdays.len() < keys_max {
                waiting.yesterdays.insert(key);
            }
        });
    }

    /// A key that may have been charged without anybody hearing of it: its caller hung up.
    pub(crate) fn unheard(&self, key: KeyId) {
        self.with(|waiting, keys_max| {
            if waiting.unheard.len() < keys_max {
                waiting.unheard.insert(key);
            }
        });
    }

    pub(crate) fn refused(&self, key: KeyId, day: Day, reason: RefusedReason) {
        self.with(|waiting, keys_max| add(&mut waiting.refused, (key, day, reason), 1, keys_max));
    }

    pub(crate) fn demo_admitted(&self, used: Used) {
        self.with(|waiting, _| {
            let demo = waiting.demo.entry(used.day).or_default();
            demo.admitted = demo.admitted.max(used.count);
        });
    }

    pub(crate) fn demo_refused(&self, day: Day) {
        self.with(|waiting, _| waiting.demo.entry(day).or_default().refused += 1);
    }

    /// Takes all that waits.
    #[must_use]
    pub fn take(&self) -> Taken {
        self.with(|waiting, _| {
            // As many will likely come again: a map that grows moves all that it holds, time and again.
            let room = HashMap::with_capacity_and_hasher(waiting.admitted.len(), RandomState::default());
            std::mem::replace(waiting, Taken { admitted: room, ..Taken::default() })
        })
    }

    /// Puts back what could not be rolled up.
    pub fn put_back(&self, taken: Taken) {
        self.with(|waiting, keys_max| {
            for (key, count) in taken.admitted {
                raise(&mut waiting.admitted, key, count, keys_max);
            }
            for (key, count) in taken.refused {
                add(&mut waiting.refused, key, count, keys_max);
            }
            waiting.yesterdays.extend(taken.yesterdays);
            waiting.unheard.extend(taken.unheard);
            for (day, count) in taken.demo {
                let demo = waiting.demo.entry(day).or_default();
                demo.admitted = demo.admitted.max(count.admitted);
                demo.refused += count.refused;
            }
        });
    }

    fn with<T>(&self, act: impl FnOnce(&mut Taken, usize) -> T) -> T {
        act(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner), self.keys_max)
    }
}

impl Taken {
    /// Absolute counts per key and day.
    #[must_use]
    pub fn rolled_up(&self) -> Vec<RolledUp> {
        self.admitted.iter().map(|(&(key, day), &count)| RolledUp { key, used: Used { day, count } }).collect()
    }

    /// Refusals per key, day and reason.
    #[must_use]
    pub fn refusals(&self) -> Vec<RefusedCount> {
        let rows = self.refused.iter();
        rows.map(|(&(key, day, reason), &count)| RefusedCount { key, day, reason, count }).collect()
    }

    /// The demo's days: the absolute count, and the refusals to add.
    #[must_use]
    pub fn demo(&self) -> Vec<(Used, u64)> {
        self.demo.iter().map(|(&day, count)| (Used { day, count: count.admitted }, count.refused)).collect()
    }

    /// Keys whose count is to be read from the counter store.
    #[must_use]
    pub fn unheard(&self) -> Vec<KeyId> {
        self.unheard.iter().copied().collect()
    }

    /// Takes the counts of those keys in, as the counter store told them.
    pub fn hear(&mut self, counts: impl IntoIterator<Item = (KeyId, Used)>) {
        self.unheard.clear();
        for (key, used) in counts {
            raise(&mut self.admitted, (key, used.day), used.count, usize::MAX);
        }
    }

    /// Keys whose yesterday the counter store may forget, once this is rolled up.
    pub fn yesterdays(&self) -> impl Iterator<Item = KeyId> {
        self.yesterdays.iter().copied()
    }

    /// Forgets sums that were added: putting the rest back must not add them twice.
    pub fn forget_refusals(&mut self, added: &[RefusedCount]) {
        for row in added {
            self.refused.remove(&(row.key, row.day, row.reason));
        }
    }

    /// Forgets a day of the demo that was rolled up.
    pub fn forget_demo(&mut self, day: Day) {
        self.demo.remove(&day);
    }
}

fn raise<K: Hash + Eq, S: BuildHasher>(counts: &mut HashMap<K, u64, S>, key: K, count: u64, keys_max: usize) {
    let room = counts.len() < keys_max;
    match counts.entry(key) {
        Entry::Occupied(mut held) => *held.get_mut() = count.max(*held.get()),
        Entry::Vacant(free) if room => drop(free.insert(count)),
        Entry::Vacant(_) => {}
    }
}

fn add<K: Hash + Eq>(counts: &mut HashMap<K, u64>, key: K, count: u64, keys_max: usize) {
    let room = counts.len() < keys_max;
    match counts.entry(key) {
        Entry::Occupied(mut held) => *held.get_mut() += count,
        Entry::Vacant(free) if room => drop(free.insert(count)),
        Entry::Vacant(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_count_never_goes_back() {
        let (tally, key) = (Tally::new(10), KeyId::parse("0123456789").expect("an id"));
        for count in [3, 5, 4] {
            tally.admitted(key, Used { day: Day(1), count });
        }
        let taken = tally.take();
        tally.admitted(key, Used { day: Day(1), count: 6 });
        tally.put_back(taken);
        assert_eq!(tally.take().rolled_up(), [RolledUp { key, used: Used { day: Day(1), count: 6 } }]);
    }
}
