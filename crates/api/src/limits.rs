//! Limits on the memory and the concurrency of the API.

use std::time::Duration;

/// Limits on the memory and the concurrency of the API.
#[derive(Clone, Copy, Debug)]
pub struct ApiLimits {
    /// Maximum number of concurrent lookups in PostgreSQL of keys that this node knows.
    pub key_fills_max: usize,
    /// Maximum number of concurrent lookups in PostgreSQL of key ids that this node does not know.
    pub unknown_lookups_max: usize,
    /// Maximum number of cached ids of keys that do not exist.
    pub unknown_cache_max: usize,
    /// How long such an id is cached.
    pub unknown_cache_ttl: Duration,
    /// Maximum number of keys in the refusal cache.
    pub refusal_cache_max: usize,
    /// Demo requests per day that all clients share.
    pub demo_daily_limit: u64,
    /// Maximum number of demo requests per subnet and day.
    pub demo_requests_per_subnet_max: u64,
    /// Maximum number of counters for the limits per caller.
    pub caller_counters_max: usize,
    /// Maximum number of entries in the render cache.
    pub render_cache_max: usize,
    /// Limits of degraded mode.
    pub degraded: DegradedLimits,
    /// Limits on requests for the status of keys.
    pub key_status: MinuteLimits,
}

/// Limits on uncharged requests.
#[derive(Clone, Copy, Debug)]
pub struct MinuteLimits {
    /// Maximum number of requests per key and minute.
    pub requests_per_key_per_min_max: u32,
    /// Maximum number of requests per subnet and minute.
    pub requests_per_subnet_per_min_max: u32,
    /// Maximum number of keys that are counted, of networks that are counted, and of cached results.
    pub entries_max: usize,
}

/// Limits of degraded mode.
#[derive(Clone, Copy, Debug)]
pub struct DegradedLimits {
    /// Maximum number of local key records, and of keys with pending charges.
    pub local_keys_max: usize,
    /// Maximum age of a local key record while neither Redis nor PostgreSQL answers.
    pub max_age: Duration,
    /// Timeout of a PostgreSQL query when a local key record can replace its result.
    pub store_timeout: Duration,
}

#[cfg(test)]
impl MinuteLimits {
    /// One request of each.
    pub(crate) const fn for_test() -> Self {
        Self { requests_per_key_per_min_max: 1, requests_per_subnet_per_min_max: 1, entries_max: 1 }
    }
}
