//! The refusal cache keeps floods on a refused key away from Redis. After 100 refusals of one key within a
//! second, the node repeats the refusal for up to one second without a charge. Nothing but refusals is
//! cached.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::KeyDigest;
use ipseity_ledger::{LedgerTime, Quota};
use ipseity_store::RefusalReason;
use quick_cache::sync::Cache;

use crate::error::Refusal;

const CACHE_AFTER_REFUSALS: u32 = 100;
const REFUSAL_WINDOW: Duration = Duration::from_secs(1);

/// Refusals that persist until the key is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PersistentRefusal {
    WrongSecret,
    Inactive,
    Expired,
    Paused { burst_limit: usize },
}

impl PersistentRefusal {
    /// The reason in usage statistics.
    pub(super) const fn reason(self) -> RefusalReason {
        match self {
            Self::WrongSecret => RefusalReason::WrongSecret,
            Self::Inactive | Self::Expired => RefusalReason::Inactive,
            Self::Paused { .. } => RefusalReason::Paused,
        }
    }
}

impl From<PersistentRefusal> for Refusal {
    fn from(refusal: PersistentRefusal) -> Self {
        match refusal {
            PersistentRefusal::WrongSecret => Self::InvalidKey,
            PersistentRefusal::Inactive => Self::Inactive,
            PersistentRefusal::Expired => Self::Expired,
            PersistentRefusal::Paused { burst_limit } => Self::Paused { limit: burst_limit },
        }
    }
}

/// Consecutive refusals of one key.
#[derive(Clone, Copy)]
pub(super) struct RefusalEntry {
    refusal: PersistentRefusal,
    window_start: Instant,
    count: u32,
    cached_until: Option<Instant>,
}

impl RefusalEntry {
    /// The refusal, if it is cached.
    pub(super) fn cached_refusal(self) -> Option<PersistentRefusal> {
        self.cached_until.is_some_and(|until| Instant::now() < until).then_some(self.refusal)
    }
}

/// Keyed by digest, not by id. Otherwise a flood of wrong secrets for an id would lock out its owner.
pub(super) struct RefusalCache(Cache<KeyDigest, RefusalEntry>);

impl RefusalCache {
    pub(super) fn new(keys_max: usize) -> Self {
        Self(Cache::new(keys_max))
    }

    pub(super) fn get(&self, digest: &KeyDigest) -> Option<RefusalEntry> {
        self.0.get(digest)
    }

    /// Counts a refusal that a verdict has just given.
    pub(super) fn record(&self, digest: KeyDigest, refusal: PersistentRefusal) {
        let now = Instant::now();
        let new_entry = RefusalEntry { refusal, window_start: now, count: 1, cached_until: None };
        let entry = match self.0.get(&digest).filter(|entry| entry.refusal == refusal) {
            // The flood continues after the entry has expired: the first request that reaches Redis renews it.
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

    /// Removes a key that was admitted.
    pub(super) fn remove(&self, digest: &KeyDigest) {
        self.0.remove(digest);
    }
}

/// Caches the exhausted demo quota until midnight, so that further requests do not reach Redis.
#[derive(Default)]
pub(super) struct DemoRefusalCache(Mutex<Option<(Instant, Quota)>>);

impl DemoRefusalCache {
    pub(super) fn set(&self, quota: Quota) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), quota));
    }

    /// The quota that Redis would return now; `None` if midnight may have passed.
    pub(super) fn get(&self) -> Option<Quota> {
        let (cached_at, quota) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let elapsed = cached_at.elapsed();
        (elapsed < Duration::from_secs(quota.retry_after_s().saturating_sub(1))).then(|| {
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            Quota { now: LedgerTime(quota.now.0.saturating_add(elapsed_ms)), ..quota }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSED: PersistentRefusal = PersistentRefusal::Paused { burst_limit: 300 };

    #[test]
    fn hundredth_refusal_within_a_second_is_cached() {
        let (cache, digest) = (RefusalCache::new(10), KeyDigest::new([7; 32]));
        for _ in 1..CACHE_AFTER_REFUSALS {
            cache.record(digest, PAUSED);
            assert_eq!(cache.get(&digest).and_then(RefusalEntry::cached_refusal), None);
        }
        cache.record(digest, PAUSED);
        assert_eq!(cache.get(&digest).and_then(RefusalEntry::cached_refusal), Some(PAUSED));
        assert!(cache.get(&KeyDigest::new([8; 32])).is_none());
    }
}
