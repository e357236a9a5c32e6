//! The usage buffer: counts of admitted and refused requests since the last usage flush.
//!
//! Counts of admitted requests are absolute, so flushing one twice, late or out of order is harmless. Refusals are
//! increments. A node that crashes loses the refusals since its last flush.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Mutex;
use std::sync::PoisonError;

use foldhash::fast::RandomState;
use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use ipseity_store::{KeyDailyUsage, RefusalCount, RefusalReason};

/// Counts that wait for the next usage flush.
pub struct UsageBuffer {
    buffered: Mutex<DrainedUsage>,
    keys_max: usize,
}

/// Counts that a usage flush has taken out of the buffer. [`UsageBuffer::restore`] puts them back if the flush fails.
#[derive(Default)]
pub struct DrainedUsage {
    /// Every request updates this map, so its hasher is fast. Keys are random ids of ours, so clients cannot
    /// cause collisions.
    admitted: HashMap<(KeyId, UtcDay), u64, RandomState>,
    refused: HashMap<(KeyId, UtcDay, RefusalReason), u64>,
    demo: HashMap<UtcDay, DemoCount>,
    yesterday_keys: HashSet<KeyId>,
    unconfirmed_keys: HashSet<KeyId>,
}

#[derive(Clone, Copy, Default)]
struct DemoCount {
    admitted: u64,
    refused: u64,
}

impl UsageBuffer {
    /// Creates a buffer for at most `keys_max` counts. The count of a key that does not fit is flushed with a
    /// later request.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self { buffered: Mutex::default(), keys_max }
    }

    pub(crate) fn record_admitted(&self, key: KeyId, usage: DailyUsage) {
        self.with_buffer(|buffer, keys_max| raise_count(&mut buffer.admitted, (key, usage.day), usage.count, keys_max));
    }

    /// Records yesterday's final count. Redis keeps it until it is flushed and then cleared.
    pub(crate) fn record_yesterday(&self, key: KeyId, usage: DailyUsage) {
        self.record_admitted(key, usage);
        self.with_buffer(|buffer, keys_max| {
            if buffer.yesterday_keys.len() < keys_max {
                buffer.yesterday_keys.insert(key);
            }
        });
    }

    /// Records that a key may have been charged without a verdict, because the client disconnected or Redis
    /// timed out.
    pub(crate) fn record_unconfirmed(&self, key: KeyId) {
        self.with_buffer(|buffer, keys_max| {
            if buffer.unconfirmed_keys.len() < keys_max {
                buffer.unconfirmed_keys.insert(key);
            }
        });
    }

    pub(crate) fn record_refused(&self, key: KeyId, day: UtcDay, reason: RefusalReason) {
        self.with_buffer(|buffer, keys_max| add_count(&mut buffer.refused, (key, day, reason), 1, keys_max));
    }

    pub(crate) fn record_demo_admitted(&self, usage: DailyUsage) {
        self.with_buffer(|buffer, _| {
            let demo = buffer.demo.entry(usage.day).or_default();
            demo.admitted = demo.admitted.max(usage.count);
        });
    }

    pub(crate) fn record_demo_refused(&self, day: UtcDay) {
        self.with_buffer(|buffer, _| buffer.demo.entry(day).or_default().refused += 1);
    }

    /// Takes all counts out of the buffer.
    #[must_use]
    pub fn drain(&self) -> DrainedUsage {
        self.with_buffer(|buffer, _| {
            // The next interval likely has as many keys. Allocating now avoids rehashing while the map grows.
            let admitted = HashMap::with_capacity_and_hasher(buffer.admitted.len(), RandomState::default());
            std::mem::replace(buffer, DrainedUsage { admitted, ..DrainedUsage::default() })
        })
    }

    /// Puts counts back after a failed flush.
    pub fn restore(&self, drained: DrainedUsage) {
        self.with_buffer(|buffer, keys_max| {
            for (key, count) in drained.admitted {
                raise_count(&mut buffer.admitted, key, count, keys_max);
            }
            for (key, count) in drained.refused {
                add_count(&mut buffer.refused, key, count, keys_max);
            }
            buffer.yesterday_keys.extend(drained.yesterday_keys);
            buffer.unconfirmed_keys.extend(drained.unconfirmed_keys);
            for (day, count) in drained.demo {
                let demo = buffer.demo.entry(day).or_default();
                demo.admitted = demo.admitted.max(count.admitted);
                demo.refused += count.refused;
            }
        });
    }

    fn with_buffer<T>(&self, update: impl FnOnce(&mut DrainedUsage, usize) -> T) -> T {
        update(&mut self.buffered.lock().unwrap_or_else(PoisonError::into_inner), self.keys_max)
    }
}

impl DrainedUsage {
    /// Absolute counts per key and day.
    #[must_use]
    pub fn admitted_rows(&self) -> Vec<KeyDailyUsage> {
        self.admitted
            .iter()
            .map(|(&(key, day), &count)| KeyDailyUsage { key, usage: DailyUsage { day, count } })
            .collect()
    }

    /// Refusals per key, day and reason.
    #[must_use]
    pub fn refusal_rows(&self) -> Vec<RefusalCount> {
        let rows = self.refused.iter();
        rows.map(|(&(key, day, reason), &count)| RefusalCount { key, day, reason, count }).collect()
    }

    /// The demo's days: the absolute count and the refusals to add.
    #[must_use]
    pub fn demo_rows(&self) -> Vec<(DailyUsage, u64)> {
        self.demo.iter().map(|(&day, count)| (DailyUsage { day, count: count.admitted }, count.refused)).collect()
    }

    /// Keys whose count must be read from Redis.
    #[must_use]
    pub fn unconfirmed_keys(&self) -> Vec<KeyId> {
        self.unconfirmed_keys.iter().copied().collect()
    }

    /// Merges the counts of the unconfirmed keys, as read from Redis.
    pub fn merge_counts(&mut self, counts: impl IntoIterator<Item = (KeyId, DailyUsage)>) {
        self.unconfirmed_keys.clear();
        for (key, usage) in counts {
            raise_count(&mut self.admitted, (key, usage.day), usage.count, usize::MAX);
        }
    }

    /// Keys whose count of yesterday can be cleared in Redis after this flush.
    pub fn yesterday_keys(&self) -> impl Iterator<Item = KeyId> {
        self.yesterday_keys.iter().copied()
    }

    /// Removes refusals that were written, so that a restore does not add them twice.
    pub fn remove_refusals(&mut self, added: &[RefusalCount]) {
        for row in added {
            self.refused.remove(&(row.key, row.day, row.reason));
        }
    }

    /// Removes a day of the demo that was written.
    pub fn remove_demo_day(&mut self, day: UtcDay) {
        self.demo.remove(&day);
    }
}

fn raise_count<K: Hash + Eq, S: BuildHasher>(counts: &mut HashMap<K, u64, S>, key: K, count: u64, keys_max: usize) {
    let has_capacity = counts.len() < keys_max;
    match counts.entry(key) {
        Entry::Occupied(mut occupied) => *occupied.get_mut() = count.max(*occupied.get()),
        Entry::Vacant(vacant) if has_capacity => drop(vacant.insert(count)),
        Entry::Vacant(_) => {}
    }
}

fn add_count<K: Hash + Eq>(counts: &mut HashMap<K, u64>, key: K, count: u64, keys_max: usize) {
    let has_capacity = counts.len() < keys_max;
    match counts.entry(key) {
        Entry::Occupied(mut occupied) => *occupied.get_mut() += count,
        Entry::Vacant(vacant) if has_capacity => drop(vacant.insert(count)),
        Entry::Vacant(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_usage_never_lowers_a_newer_count() {
        let (usage_buffer, key) = (UsageBuffer::new(10), KeyId::parse("0123456789").expect("valid key id"));
        for count in [3, 5, 4] {
            usage_buffer.record_admitted(key, DailyUsage { day: UtcDay(1), count });
        }
        let drained = usage_buffer.drain();
        usage_buffer.record_admitted(key, DailyUsage { day: UtcDay(1), count: 6 });
        usage_buffer.restore(drained);
        assert_eq!(
            usage_buffer.drain().admitted_rows(),
            [KeyDailyUsage { key, usage: DailyUsage { day: UtcDay(1), count: 6 } }]
        );
    }
}
