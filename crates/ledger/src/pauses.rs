//! Pauses that PostgreSQL may not have yet, because the node that got the verdict may have crashed before it wrote
//! them.

use std::collections::HashMap;

use ipseity_domain::{BURST_WINDOW_S, KeyId, KeyPause, PerSecondCounts};
use redis::Cmd;

use crate::columns::column;
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::scripts::random_nonce;

impl Ledger {
    /// The pause of a key at `at_ms` with its evidence: the requests in the log.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn pause_evidence(&self, key: KeyId, burst_epoch: u64, at_ms: u64) -> Result<KeyPause, LedgerError> {
        let bucket = Bucket::of(key);
        let log: Vec<Vec<u8>> = self.send_command(bucket.slot(), &Cmd::lrange(bucket.log_key(key), 0, -1)).await?;
        Ok(KeyPause { key, burst_epoch, at_ms, counts: count_per_second(&log, at_ms) })
    }

    /// Returns the pauses of one key that are not yet recorded in PostgreSQL.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn unrecorded_pauses_of(&self, key: KeyId) -> Result<Vec<KeyPause>, LedgerError> {
        let bucket = Bucket::of(key);
        let found: HashMap<String, String> =
            self.send_command(bucket.slot(), &Cmd::hgetall(bucket.pending_pauses_key())).await?;
        let mut pauses = Vec::new();
        for pending in found.iter().filter_map(|(field, value)| PendingPause::parse(field, value)) {
            if pending.key == key {
                pauses.push(self.complete_pause(pending).await?);
            }
        }
        Ok(pauses)
    }

    pub(crate) async fn complete_pause(&self, pending: PendingPause) -> Result<KeyPause, LedgerError> {
        let PendingPause { key, burst_epoch, at_ms, counts } = pending;
        match counts {
            Some(counts) => Ok(KeyPause { key, burst_epoch, at_ms, counts }),
            None => self.pause_evidence(key, burst_epoch, at_ms).await,
        }
    }

    /// Removes a pause that PostgreSQL has. The new fence makes a fill with older data fail.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn mark_pause_recorded(&self, pause: &KeyPause) -> Result<(), LedgerError> {
        let bucket = Bucket::of(pause.key);
        let replace_fence = Cmd::set(bucket.fence_key(), random_nonce());
        self.send_command::<()>(bucket.slot(), &replace_fence).await?;
        let remove = Cmd::hdel(bucket.pending_pauses_key(), format!("{}:{}", pause.key, pause.burst_epoch));
        self.send_command(bucket.slot(), &remove).await
    }
}

/// A pause that waits to be recorded. A node that decided it in degraded mode has written its counts; otherwise they
/// are in the log.
pub(crate) struct PendingPause {
    pub(crate) key: KeyId,
    burst_epoch: u64,
    at_ms: u64,
    counts: Option<PerSecondCounts>,
}

impl PendingPause {
    /// Parses `<key id>:<burst epoch>` and `<ms>` or `<ms>:<counts>`.
    pub(crate) fn parse(field: &str, value: &str) -> Option<Self> {
        let (id, burst_epoch) = field.split_once(':')?;
        let (at_ms, counts) = value.split_once(':').map_or((value, None), |(at_ms, counts)| (at_ms, Some(counts)));
        let counts = match counts {
            Some(counts) => Some(parse_counts(counts)?),
            None => None,
        };
        Some(Self {
            key: KeyId::parse(id)?,
            burst_epoch: burst_epoch.parse().ok()?,
            at_ms: at_ms.parse().ok()?,
            counts,
        })
    }
}

/// Parses `12,0,…`, one number for each second of the burst window.
fn parse_counts(text: &str) -> Option<PerSecondCounts> {
    let counts: Option<Vec<u16>> = text.split(',').map(|count| count.parse().ok()).collect();
    counts?.try_into().ok()
}

/// Counts the log entries in each second before the pause, oldest first, and the request that caused it. If the key was
/// resumed since, the log has only later requests.
fn count_per_second(log: &[Vec<u8>], at_ms: u64) -> PerSecondCounts {
    let mut counts = [0; BURST_WINDOW_S as usize];
    let time_of = |entry: &Vec<u8>| std::str::from_utf8(entry.get(..column("entry_ms").width)?).ok()?.parse().ok();
    for time_ms in log.iter().filter_map(time_of).filter(|time_ms| *time_ms <= at_ms).chain([at_ms]) {
        let age_s = usize::try_from((at_ms - time_ms) / 1000).unwrap_or(usize::MAX);
        if let Some(count) = counts.iter_mut().rev().nth(age_s) {
            *count += 1;
        }
    }
    counts
}
