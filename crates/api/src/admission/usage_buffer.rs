//! The usage buffer: refused requests and demo requests since the last usage flush. Redis itself marks the counts of
//! admitted requests for the flush.
//!
//! The demo's count is absolute, so flushing it twice, late or out of order is harmless. Refusals are increments. A node
//! that crashes loses the refusals since its last flush.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::sync::PoisonError;

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use ipseity_store::{RefusalCount, RefusalReason};

/// Counts that wait for the next usage flush.
pub struct UsageBuffer {
    buffered: Mutex<DrainedUsage>,
    keys_max: usize,
}

/// Counts that a usage flush has taken out of the buffer. [`UsageBuffer::restore`] puts them back if the flush fails.
#[derive(Default)]
pub struct DrainedUsage {
    refused: HashMap<(KeyId, UtcDay, RefusalReason), u64>,
    demo: HashMap<UtcDay, DemoCount>,
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

    pub(crate) fn record_refused(&self, key: KeyId, day: UtcDay, reason: RefusalReason) {
        self.add_refused(key, day, reason, 1);
    }

    pub(crate) fn add_refused(&self, key: KeyId, day: UtcDay, reason: RefusalReason, count: u64) {
        self.with_buffer(|buffer, keys_max| add_count(&mut buffer.refused, (key, day, reason), count, keys_max));
    }

    pub(crate) fn record_demo_admitted(&self, usage: DailyUsage) {
        self.with_buffer(|buffer, _| {
            let demo = buffer.demo.entry(usage.day).or_default();
            demo.admitted = demo.admitted.max(usage.count);
        });
    }

    pub(crate) fn record_demo_refused(&self, day: UtcDay) {
        self.add_demo_refused(day, 1);
    }

    pub(crate) fn add_demo_refused(&self, day: UtcDay, count: u64) {
        self.with_buffer(|buffer, _| {
            let demo = buffer.demo.entry(day).or_default();
            demo.refused = demo.refused.saturating_add(count);
        });
    }

    /// Takes all counts out of the buffer.
    #[must_use]
    pub fn drain(&self) -> DrainedUsage {
        self.with_buffer(|buffer, _| std::mem::take(buffer))
    }

    /// Puts counts back after a failed flush.
    pub fn restore(&self, drained: DrainedUsage) {
        self.with_buffer(|buffer, keys_max| {
            for (key, count) in drained.refused {
                add_count(&mut buffer.refused, key, count, keys_max);
            }
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

fn add_count<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u64>, key: K, count: u64, keys_max: usize) {
    let has_capacity = counts.len() < keys_max;
    match counts.entry(key) {
        Entry::Occupied(mut occupied) => *occupied.get_mut() = occupied.get().saturating_add(count),
        Entry::Vacant(vacant) if has_capacity => drop(vacant.insert(count)),
        Entry::Vacant(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_refusals_are_added_once() {
        let (usage_buffer, key) = (UsageBuffer::new(10), KeyId::parse("0123456789").expect("valid key id"));
        usage_buffer.record_refused(key, UtcDay(1), RefusalReason::Paused);
        let drained = usage_buffer.drain();
        usage_buffer.record_refused(key, UtcDay(1), RefusalReason::Paused);
        usage_buffer.restore(drained);
        let mut drained = usage_buffer.drain();
        let rows = drained.refusal_rows();
        assert_eq!(rows, [RefusalCount { key, day: UtcDay(1), reason: RefusalReason::Paused, count: 2 }]);
        drained.remove_refusals(&rows);
        assert!(drained.refusal_rows().is_empty());
    }
}
