//! A flood on a refused key must cost the counter store nothing: after 100 refusals of one key within a second, the node remembers the
//! refusal for up to one second. Nothing else is ever answered from memory.

use std::time::{Duration, Instant};

use ipseity_domain::KeyDigest;
use ipseity_store::RefusalReason;
use quick_cache::sync::Cache;

use crate::error::Refusal;

const CACHE_AFTER_REFUSALS: u32 = 100;
const REFUSAL_WINDOW: Duration = Duration::from_secs(1);

/// Refusals that time does not heal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PersistentRefusal {
    WrongSecret,
    Inactive,
    Paused,
}

impl PersistentRefusal {
    /// How it is counted.
    pub(crate) const fn reason(self) -> RefusalReason {
        match self {
            Self::WrongSecret => RefusalReason::WrongSecret,
            Self::Inactive => RefusalReason::Inactive,
            Self::Paused => RefusalReason::Paused,
        }
    }
}

impl From<PersistentRefusal> for Refusal {
    fn from(refusal: PersistentRefusal) -> Self {
        match refusal {
            PersistentRefusal::WrongSecret => Self::InvalidKey,
            PersistentRefusal::Inactive => Self::Inactive,
            PersistentRefusal::Paused => Self::Paused,
        }
    }
}

/// Refusals of one key in a row.
#[derive(Clone, Copy)]
pub(crate) struct RefusalEntry {
    refusal: PersistentRefusal,
    window_start: Instant,
    count: u32,
    cached_until: Option<Instant>,
}

impl RefusalEntry {
    /// The refusal, if it may be given again without asking.
    pub(crate) fn cached_refusal(self) -> Option<PersistentRefusal> {
        self.cached_until.is_some_and(|until| Instant::now() < until).then_some(self.refusal)
    }
}

/// By digest, not by id: a stranger who floods an id with wrong secrets must not have its owner refused.
pub(crate) struct RefusalCache(Cache<KeyDigest, RefusalEntry>);

impl RefusalCache {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self(Cache::new(keys_max))
    }

    pub(crate) fn get(&self, digest: &KeyDigest) -> Option<RefusalEntry> {
        self.0.get(digest)
    }

    /// Notes a refusal that the counter store has just given.
    pub(crate) fn record(&self, digest: KeyDigest, refusal: PersistentRefusal) {
        let now = Instant::now();
        let new_entry = RefusalEntry { refusal, window_start: now, count: 1, cached_until: None };
        let entry = match self.0.get(&digest).filter(|entry| entry.refusal == refusal) {
            // Still flooded when the memory lapsed: the one question that got through renews it.
            Some(entry) if entry.cached_until.is_some_and(|until| now < until + REFUSAL_WINDOW) => {
                RefusalEntry { cached_until: Some(now + REFUSAL_WINDOW), ..entry }
            }
            Some(entry) if now < entry.window_start + REFUSAL_WINDOW => {
                let count = entry.count + 1;
                RefusalEntry {
                    count,
                    cached_until: (count >= CACHE_AFTER_REFUSALS).then_some(now + REFUSAL_WINDOW),
                    ..entry
                }
            }
            Some(_) | None => new_entry,
        };
        self.0.insert(digest, entry);
    }

    /// Forgets a key that was admitted.
    pub(crate) fn remove(&self, digest: &KeyDigest) {
        self.0.remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hundredth_refusal_within_a_second_is_cached() {
        let (cache, digest) = (RefusalCache::new(10), KeyDigest::new([7; 32]));
        for _ in 1..CACHE_AFTER_REFUSALS {
            cache.record(digest, PersistentRefusal::Paused);
            assert_eq!(cache.get(&digest).and_then(RefusalEntry::cached_refusal), None);
        }
        cache.record(digest, PersistentRefusal::Paused);
        assert_eq!(cache.get(&digest).and_then(RefusalEntry::cached_refusal), Some(PersistentRefusal::Paused));
        assert!(cache.get(&KeyDigest::new([8; 32])).is_none());
    }
}
