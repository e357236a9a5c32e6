//! Today's usage of keys, for the pages of their owners. No verdict depends on it.

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use redis::Cmd;

use crate::columns::{Column, column};
use crate::error::LedgerError;
use crate::layout::{Bucket, HashSlot};
use crate::ledger::Ledger;

const TODAY: Column = column("today");
const TODAY_COUNT: Column = column("today_count");

impl Ledger {
    /// Returns the newest day with requests and its count for each key, in the order of `keys`. Keys without a record
    /// are `None`.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn usage_of(&self, keys: &[KeyId]) -> Result<Vec<Option<DailyUsage>>, LedgerError> {
        let reads: Vec<_> = keys.iter().copied().map(read_usage).collect();
        let replies: Vec<Vec<u8>> = self.read_many(&reads).await?;
        Ok(replies.iter().map(|columns| parse_usage(columns)).collect())
    }
}

/// The command that reads the columns of [`parse_usage`].
pub(crate) fn read_usage(key: KeyId) -> (HashSlot, Cmd) {
    let bucket = Bucket::of(key);
    // GETRANGE includes its end.
    let (first, last) = (TODAY.start as isize, TODAY_COUNT.end() as isize - 1);
    (bucket.slot(), Cmd::getrange(bucket.record_key(key), first, last))
}

/// The columns are empty if there is no record.
pub(crate) fn parse_usage(columns: &[u8]) -> Option<DailyUsage> {
    let (day, count) = std::str::from_utf8(columns).ok()?.split_at_checked(TODAY.width)?;
    Some(DailyUsage { day: UtcDay(day.parse().ok()?), count: count.parse().ok()? })
}
