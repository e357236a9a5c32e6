//! Reads the status of keys from the stores or from home, within limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipseity_domain::{Address, ApiKey, KeyDigest, VersionedRestrictions};
use ipseity_ledger::KeySnapshot;
use quick_cache::sync::Cache;

use crate::admission::Admission;
use crate::error::Refusal;
use crate::limits::MinuteLimits;
use crate::minute_limiter::MinuteLimiter;
use crate::wall_clock::wall_clock;

/// How long a status is cached, so that a client that polls costs the stores little.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// The status of a key, and its restrictions.
#[derive(Clone)]
pub(crate) struct RestrictedStatus {
    pub(crate) status: KeySnapshot,
    /// Not copied, because there can be many.
    pub(crate) versioned: Arc<VersionedRestrictions>,
}

/// Reads the status of keys, within limits.
pub(crate) struct KeyStatusReader {
    limiter: MinuteLimiter,
    /// By digest, so that only the same secret gets the cached status.
    cache: Cache<KeyDigest, (Instant, RestrictedStatus)>,
}

impl KeyStatusReader {
    pub(crate) fn new(limits: MinuteLimits) -> Self {
        Self { limiter: MinuteLimiter::new(limits), cache: Cache::new(limits.entries_max) }
    }

    /// The status of a key. A request with a ticket is counted as one of the ticket, not of the key.
    pub(super) async fn read(
        &self,
        admission: &Admission,
        client: Address,
        key: &ApiKey,
        counted_as: KeyDigest,
    ) -> Result<RestrictedStatus, Refusal> {
        let now = Instant::now();
        self.limiter.take(Some(client), counted_as, now).map_err(|reached| Refusal::StatusLimited {
            now: wall_clock(),
            limit: reached.limit.into(),
            retry_after_s: reached.retry_after_s,
        })?;
        if let Some((_, status)) = self.cache.get(&key.digest).filter(|(read_at, _)| now - *read_at < CACHE_TTL) {
            return Ok(status);
        }
        let status = admission.key_status(key).await?;
        let versioned = admission.restrictions_of(key, status.restriction_version).await?.unwrap_or_default();
        let status = RestrictedStatus { status, versioned };
        self.cache.insert(key.digest, (now, status.clone()));
        Ok(status)
    }
}
