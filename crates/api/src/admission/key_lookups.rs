//! Lookups of key records in PostgreSQL, and the ids that do not exist there.
//!
//! Anyone can make up key ids. Lookups of ids that this node does not know have their own small share of permits, so
//! that they never delay the lookups of keys that it knows.

use std::time::{Duration, Instant};

use ipseity_domain::KeyId;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use crate::limits::ApiLimits;

pub(super) struct KeyLookups {
    known: Semaphore,
    unknown: Semaphore,
    /// Ids of keys that do not exist, and when PostgreSQL said so. The cache also limits lookups to one per id at a
    /// time.
    pub(super) missing_keys: Cache<KeyId, Instant>,
    missing_ttl: Duration,
}

impl KeyLookups {
    pub(super) fn new(limits: &ApiLimits) -> Self {
        Self {
            known: Semaphore::new(limits.key_fills_max),
            unknown: Semaphore::new(limits.unknown_lookups_max),
            missing_keys: Cache::new(limits.unknown_cache_max),
            missing_ttl: limits.unknown_cache_ttl,
        }
    }

    /// The permits for lookups of keys that this node knows, or of others.
    pub(super) const fn permits(&self, is_known: bool) -> &Semaphore {
        if is_known { &self.known } else { &self.unknown }
    }

    /// Whether PostgreSQL did not have the key a short time ago.
    pub(super) fn is_missing(&self, id: KeyId) -> bool {
        let Some(since) = self.missing_keys.get(&id) else { return false };
        let is_recent = since.elapsed() < self.missing_ttl;
        if !is_recent {
            self.missing_keys.remove(&id);
        }
        is_recent
    }
}
