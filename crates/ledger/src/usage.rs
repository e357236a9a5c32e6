//! How much of a day keys have used, for the people who own them; no verdict depends on it.

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use redis::Cmd;

use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;

/// Where record.lua has today's number and its count, and how long the first is.
const TODAY_COLUMNS: (isize, isize) = (62, 79);
const DAY_DIGITS: usize = 6;

impl Ledger {
    /// The newest day that each key was charged to, and its count, in the order asked; `None` where there is no record.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn usage_of(&self, keys: &[KeyId]) -> Result<Vec<Option<DailyUsage>>, LedgerError> {
        let read = |key: &KeyId| {
            let bucket = Bucket::of(*key);
            (bucket.slot(), Cmd::getrange(bucket.record_key(*key), TODAY_COLUMNS.0, TODAY_COLUMNS.1))
        };
        let reads: Vec<_> = keys.iter().map(read).collect();
        let replies: Vec<Vec<u8>> = self.read_many(&reads).await?;
        Ok(replies.iter().map(|columns| parse_usage(columns)).collect())
    }
}

/// Nothing is read where there is no record.
fn parse_usage(columns: &[u8]) -> Option<DailyUsage> {
    let (day, count) = std::str::from_utf8(columns).ok()?.split_at_checked(DAY_DIGITS)?;
    Some(DailyUsage { day: UtcDay(day.parse().ok()?), count: count.parse().ok()? })
}
