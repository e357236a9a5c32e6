//! How much of a day keys have used, for the people who own them; no verdict depends on it.

use domain::{Day, KeyId, Used};
use redis::Cmd;

use crate::ledger::Ledger;
use crate::outage::LedgerError;
use crate::slot::Bucket;

/// Where record.lua has today's number and its count, and how long the first is.
const TODAY: (isize, isize) = (62, 79);
const DAY_DIGITS: usize = 6;

impl Ledger {
    /// The newest day that each key was charged to, and its count, in the order asked; `None` where there is no record.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn used(&self, keys: &[KeyId]) -> Result<Vec<Option<Used>>, LedgerError> {
        let look = |key: &KeyId| {
            let bucket = Bucket::of(*key);
            (bucket.slot(), Cmd::getrange(bucket.record(*key), TODAY.0, TODAY.1))
        };
        let reads: Vec<_> = keys.iter().map(look).collect();
        let found: Vec<Vec<u8>> = self.gather(&reads).await?;
        Ok(found.iter().map(|columns| used(columns)).collect())
    }
}

/// Nothing is read where there is no record.
fn used(columns: &[u8]) -> Option<Used> {
    let (day, count) = std::str::from_utf8(columns).ok()?.split_at_checked(DAY_DIGITS)?;
    Some(Used { day: Day(day.parse().ok()?), count: count.parse().ok()? })
}
