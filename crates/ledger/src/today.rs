//! How much of a day keys have used, for the people who own them; no verdict depends on it.

use domain::{Day, KeyId, Used};
use redis::Cmd;

use crate::ledger::Ledger;
use crate::outage::LedgerError;
use crate::slot::Bucket;

impl Ledger {
    /// The newest day that each key was charged to, and its count, in the order asked; `None` where there is no record.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn used(&self, keys: &[KeyId]) -> Result<Vec<Option<Used>>, LedgerError> {
        let look = |key: &KeyId| {
            let bucket = Bucket::of(*key);
            (bucket.slot(), Cmd::hmget(bucket.record(*key), &["t", "n"]))
        };
        let reads: Vec<_> = keys.iter().map(look).collect();
        let found: Vec<(Option<u32>, Option<u64>)> = self.gather(&reads).await?;
        let used = |(day, count): (Option<u32>, Option<u64>)| Some(Used { day: Day(day?), count: count? });
        Ok(found.into_iter().map(used).collect())
    }
}
