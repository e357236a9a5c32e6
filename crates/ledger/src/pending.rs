//! Pauses that may lack their row in the durable store: the node that made the verdict may have died before it wrote one.

use std::collections::HashMap;
use std::time::Duration;

use domain::{KeyId, Pause};
use redis::Cmd;

use crate::ledger::Ledger;
use crate::outage::LedgerError;
use crate::slot::{self, Bucket, Slot};
use crate::verdict::parse_counts;

impl Ledger {
    /// All pauses that wait for their row; empty when another node has swept within `interval`.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn sweep(&self, interval: Duration) -> Result<Vec<Pause>, LedgerError> {
        // A little less than the interval, so that a lone node never finds its own turn from before.
        let held_ms = u64::try_from(interval.as_millis() * 9 / 10).unwrap_or(u64::MAX).max(1);
        let mut turn = redis::cmd("SET");
        turn.arg(slot::sweep()).arg(1).arg("NX").arg("PX").arg(held_ms);
        let mine: Option<String> = self.command(Slot::of(&slot::sweep()), &turn).await?;
        if mine.is_none() {
            return Ok(Vec::new());
        }
        let sweep: Vec<_> = Bucket::all().map(|bucket| (bucket.slot(), Cmd::hgetall(bucket.pending()))).collect();
        let found: Vec<HashMap<String, String>> = self.gather(&sweep).await?;
        Ok(found.iter().flatten().filter_map(|(name, value)| parse(name, value)).collect())
    }

    /// The pauses of one key that wait for their row.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn pending(&self, key: KeyId) -> Result<Vec<Pause>, LedgerError> {
        let bucket = Bucket::of(key);
        let found: HashMap<String, String> = self.command(bucket.slot(), &Cmd::hgetall(bucket.pending())).await?;
        Ok(found.iter().filter_map(|(name, value)| parse(name, value)).filter(|pause| pause.key == key).collect())
    }

    /// Removes a pause from those that wait: its row is there.
    ///
    /// # Errors
    /// When the counter store does not answer in time.
    pub async fn confirm(&self, pause: &Pause) -> Result<(), LedgerError> {
        let bucket = Bucket::of(pause.key);
        let confirm = Cmd::hdel(bucket.pending(), format!("{}:{}", pause.key, pause.window));
        self.command(bucket.slot(), &confirm).await
    }
}

/// `<id>:<window>` and `<ms>:<counts>`, as charge.lua writes them.
fn parse(name: &str, value: &str) -> Option<Pause> {
    let (id, window) = name.split_once(':')?;
    let (at_ms, counts) = value.split_once(':')?;
    Some(Pause {
        key: KeyId::parse(id)?,
        window: window.parse().ok()?,
        at_ms: at_ms.parse().ok()?,
        counts: parse_counts(counts.as_bytes())?,
    })
}
