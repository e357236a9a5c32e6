//! The recent requests of keys, for the pages of their owners. No verdict depends on it, and nothing is written.

use ipseity_domain::{DailyUsage, KeyId, LimitLevel, near_limit};
use redis::Cmd;

use crate::error::LedgerError;
use crate::key_status::is_in_burst_window;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::ledger_time::LedgerTime;
use crate::owner::Owner;
use crate::usage::{parse_usage, read_usage};

/// Number of keys that one call reads, so that it delays no charge.
const KEYS_PER_CALL_MAX: usize = 256;

/// The recent requests of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentUse {
    /// The newest day with requests and its count. `None` without a record.
    pub usage: Option<DailyUsage>,
    /// Whether the burst limit is near. A limit that is used up is near as well.
    pub burst: LimitLevel,
}

impl Ledger {
    /// Returns the recent requests of keys with these burst limits, in the order of `keys`. Of each log it reads one entry.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn recent_use_of(&self, keys: &[(KeyId, usize)]) -> Result<Vec<RecentUse>, LedgerError> {
        let mut recent = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_PER_CALL_MAX) {
            recent.extend(self.read_recent_use(keys).await?);
        }
        Ok(recent)
    }

    async fn read_recent_use(&self, keys: &[(KeyId, usize)]) -> Result<Vec<RecentUse>, LedgerError> {
        let read = |&(key, burst_limit): &(KeyId, usize)| {
            let bucket = Bucket::of(key);
            let entry = Cmd::lindex(bucket.log_key(key), near_burst_position(burst_limit));
            [read_usage(key), (bucket.slot(), entry)]
        };
        let reads: Vec<_> = keys.iter().flat_map(read).collect();
        let mut owners: Vec<Owner> = Vec::new();
        for owner in keys.iter().map(|(key, _)| self.owner_of(*key)) {
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        // A handle that charges nothing has an old estimate of the clocks, which is late.
        let (replies, ()) = tokio::join!(self.read_many::<Vec<u8>>(&reads), self.refresh_clocks_of(&owners));
        let replies = replies?;
        let recent_use = |((key, _), replies): (&(KeyId, usize), &[Vec<u8>])| RecentUse {
            usage: parse_usage(&replies[0]),
            burst: near_burst_level(&replies[1], self.owner_of(*key).now()),
        };
        Ok(keys.iter().zip(replies.chunks_exact(2)).map(recent_use).collect())
    }
}

/// The position in a key's log of the oldest entry of those that are near the burst limit, from the end. If it still counts, the limit
/// is near.
pub(crate) fn near_burst_position(burst_limit: usize) -> isize {
    -isize::try_from(near_limit(burst_limit as u64).max(1)).unwrap_or(isize::MAX)
}

pub(crate) fn near_burst_level(entry: &[u8], now: LedgerTime) -> LimitLevel {
    if is_in_burst_window(entry, now) { LimitLevel::Near } else { LimitLevel::Normal }
}
