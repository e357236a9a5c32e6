//! Pauses that PostgreSQL may not have yet, because the node that got the verdict may have crashed before it wrote
//! them.

use std::collections::HashMap;
use std::time::Duration;

use ipseity_domain::{KeyId, KeyPause};
use redis::Cmd;

use crate::error::LedgerError;
use crate::layout::{self, Bucket, HashSlot};
use crate::ledger::Ledger;
use crate::verdict::parse_pause_counts;

impl Ledger {
    /// Returns all pauses that are not yet recorded in PostgreSQL. The result is empty if another node did so within
    /// `interval`.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn claim_unrecorded_pauses(&self, interval: Duration) -> Result<Vec<KeyPause>, LedgerError> {
        // Shorter than the interval, so that a single node never finds its previous claim.
        let lease_ms = u64::try_from(interval.as_millis() * 9 / 10).unwrap_or(u64::MAX).max(1);
        let mut claim = redis::cmd("SET");
        claim.arg(layout::pause_claim_key()).arg(1).arg("NX").arg("PX").arg(lease_ms);
        let claimed: Option<String> = self.send_command(HashSlot::of(&layout::pause_claim_key()), &claim).await?;
        if claimed.is_none() {
            return Ok(Vec::new());
        }
        let reads: Vec<_> =
            Bucket::all().map(|bucket| (bucket.slot(), Cmd::hgetall(bucket.pending_pauses_key()))).collect();
        let found: Vec<HashMap<String, String>> = self.read_many(&reads).await?;
        Ok(found.iter().flatten().filter_map(|(field, value)| parse_unrecorded_pause(field, value)).collect())
    }

    /// Returns the pauses of one key that are not yet recorded in PostgreSQL.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn unrecorded_pauses_of(&self, key: KeyId) -> Result<Vec<KeyPause>, LedgerError> {
        let bucket = Bucket::of(key);
        let found: HashMap<String, String> =
            self.send_command(bucket.slot(), &Cmd::hgetall(bucket.pending_pauses_key())).await?;
        Ok(found
            .iter()
            .filter_map(|(field, value)| parse_unrecorded_pause(field, value))
            .filter(|pause| pause.key == key)
            .collect())
    }

    /// Removes a pause that PostgreSQL has.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn mark_pause_recorded(&self, pause: &KeyPause) -> Result<(), LedgerError> {
        let bucket = Bucket::of(pause.key);
        let remove = Cmd::hdel(bucket.pending_pauses_key(), format!("{}:{}", pause.key, pause.burst_epoch));
        self.send_command(bucket.slot(), &remove).await
    }
}

/// Parses `<key id>:<burst epoch>` and `<ms>:<counts>`, which `charge.lua` writes.
fn parse_unrecorded_pause(field: &str, value: &str) -> Option<KeyPause> {
    let (id, burst_epoch) = field.split_once(':')?;
    let (at_ms, counts) = value.split_once(':')?;
    Some(KeyPause {
        key: KeyId::parse(id)?,
        burst_epoch: burst_epoch.parse().ok()?,
        at_ms: at_ms.parse().ok()?,
        counts: parse_pause_counts(counts.as_bytes())?,
    })
}
