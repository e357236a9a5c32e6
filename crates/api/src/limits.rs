//! Limits on the memory and the concurrency of the API.

use std::time::Duration;

/// Limits on the memory and the concurrency of the API.
#[derive(Clone, Copy, Debug)]
pub struct ApiLimits {
    /// Maximum number of concurrent key lookups in PostgreSQL.
    pub key_fills_max: usize,
    /// Maximum number of cached ids of keys that do not exist.
    pub unknown_cache_max: usize,
    /// Maximum number of keys in the refusal cache.
    pub refusal_cache_max: usize,
    /// Maximum number of entries in the render cache.
    pub render_cache_max: usize,
    /// Limits of degraded mode.
    pub degraded: DegradedLimits,
}

/// Limits of degraded mode.
#[derive(Clone, Copy, Debug)]
pub struct DegradedLimits {
    /// Maximum number of local key records, and of keys with pending charges.
    pub local_keys_max: usize,
    /// Maximum age of a local key record while neither Redis nor PostgreSQL answers.
    pub max_age: Duration,
    /// Number of consecutive failed charges that open the breaker.
    pub failures_max: u32,
    /// Timeout of a PostgreSQL query when a local key record can replace its result.
    pub store_timeout: Duration,
}
