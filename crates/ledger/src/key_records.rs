//! Writing and deleting key records.

use std::time::{Duration, Instant};

use ipseity_domain::{BURST_LIMIT, BURST_LIMIT_MAX, DAILY_LIMIT_MAX, DailyUsage, KeyChange, KeyId, KeyRecord};
use redis::Cmd;
use tokio::time::sleep;

use crate::columns::column;
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::redis::identity::Incarnation;
use crate::request::RedisRequest;
use crate::scripts::{self, random_nonce};
use crate::verdict::{Fence, ScriptReply};

/// Codes of `write_record.lua`.
const FENCE_MISMATCH: u8 = b'0';
const INCARNATION_MISMATCH: u8 = b'2';
const SUPERSEDED: u8 = b'3';

/// Modes of `write_record.lua`.
const FILL: &str = "fill";
const PUBLISH: &str = "publish";

/// Longest wait after a fill. The estimate is one round trip behind at most.
const AFTER_FILL_MAX: Duration = Duration::from_millis(5);

/// The result of publishing a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Published {
    /// No charge uses an older record.
    Applied,
    /// Redis has a record with a greater generation, or with other data for the same generation. Either a newer change
    /// was published in between, or PostgreSQL has lost commits.
    Superseded,
}

/// The expiry of a key that never expires.
const NEVER_S: u64 = 10_u64.pow(column("expires_s").width as u32) - 1;

const _: () = assert!(DAILY_LIMIT_MAX < 10_u64.pow(column("daily_limit").width as u32));
const _: () = assert!(BURST_LIMIT_MAX < 10_usize.pow(column("burst_limit").width as u32));

impl Ledger {
    /// Writes a record that was read from PostgreSQL after a charge returned
    /// [`Verdict::Unknown`](crate::Verdict::Unknown). Returns `false` if the key has changed since that charge.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn fill(&self, key_record: &KeyRecord, fence: &Fence) -> Result<bool, LedgerError> {
        // A restored Redis may have the same fence again, and may have lost the change that replaced it.
        let expected_fence = |incarnation: &Incarnation| {
            if *incarnation == fence.incarnation { fence.nonce.clone() } else { Vec::new() }
        };
        let bucket = Bucket::of(key_record.id);
        // Not in the script: a server that migrates the slot would wait for the missing key.
        let previous_layout: Vec<u8> =
            self.send_command(bucket.slot(), &Cmd::get(bucket.previous_record_key(key_record.id))).await?;
        let mut request = self.begin_request(bucket.slot()).await?;
        Ok(self.write_key_record(&mut request, key_record, FILL, &previous_layout, expected_fence).await?
            != FENCE_MISMATCH)
    }

    /// Applies a change that is committed in PostgreSQL.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn apply_change(&self, change: &KeyChange) -> Result<Published, LedgerError> {
        match change {
            KeyChange::Updated(key_record) => self.publish(key_record).await,
            KeyChange::Deleted(id) => self.delete_key_record(*id).await.map(|()| Published::Applied),
        }
    }

    /// Replaces the record of a changed key, if there is one.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn publish(&self, key_record: &KeyRecord) -> Result<Published, LedgerError> {
        let mut request = self.begin_request(Bucket::of(key_record.id).slot()).await?;
        let new_fence = |_: &Incarnation| random_nonce().into_bytes();
        loop {
            match self.write_key_record(&mut request, key_record, PUBLISH, &[], new_fence).await? {
                SUPERSEDED => return Ok(Published::Superseded),
                INCARNATION_MISMATCH if self.refresh_identity(&mut request).await? => {}
                INCARNATION_MISMATCH => {
                    // In a cluster, the slot may return to the server of that incarnation, which would trust the
                    // record without the change.
                    self.invalidate_key_record(key_record.id).await?;
                    return Ok(Published::Applied);
                }
                _ => return Ok(Published::Applied),
            }
        }
    }

    /// Makes the next charge of a key read PostgreSQL.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn invalidate_key_record(&self, id: KeyId) -> Result<(), LedgerError> {
        let bucket = Bucket::of(id);
        let build_invocation = |_: &Incarnation| {
            let mut invocation = scripts::INVALIDATE_RECORD.prepare_invoke();
            invocation.key(bucket.record_key(id)).key(bucket.fence_key()).arg(random_nonce());
            invocation
        };
        self.run_script(&mut self.begin_request(bucket.slot()).await?, build_invocation).await?;
        Ok(())
    }

    async fn write_key_record(
        &self,
        request: &mut RedisRequest,
        key_record: &KeyRecord,
        mode: &str,
        previous_layout: &[u8],
        fence: impl Fn(&Incarnation) -> Vec<u8>,
    ) -> Result<u8, LedgerError> {
        let bucket = Bucket::of(key_record.id);
        let (previous_digest, until_s) = key_record
            .previous
            .as_ref()
            .map_or((&[][..], 0), |previous| (&previous.digest.as_bytes()[..], previous.expires_at_s));
        let (version, expires_at_s) = key_record.restrictions.as_ref().map_or((0, NEVER_S), |versioned| {
            (versioned.version, versioned.restrictions.expires_at_s.unwrap_or(NEVER_S).min(NEVER_S))
        });
        // Nodes of version 0.1 can read a record with the limit of the specification.
        let burst_limit =
            if key_record.burst_limit == BURST_LIMIT { 0 } else { key_record.burst_limit.clamp(1, BURST_LIMIT_MAX) };
        let usage = [key_record.usage, key_record.previous_usage];
        let [(day, count), (previous_day, previous_count)] =
            usage.map(|usage| usage.map_or((0, 0), |DailyUsage { day, count }| (day.0, count)));
        let build_invocation = |incarnation: &Incarnation| {
            let mut invocation = scripts::WRITE_RECORD.prepare_invoke();
            invocation
                .key(bucket.record_key(key_record.id))
                .key(bucket.log_key(key_record.id))
                .key(bucket.fence_key())
                .key(bucket.pending_pauses_key())
                .key(bucket.unflushed_key());
            invocation
                .arg(mode)
                .arg(fence(incarnation))
                .arg(incarnation.as_bytes())
                .arg(key_record.generation)
                .arg(key_record.burst_epoch);
            invocation.arg(u8::from(key_record.flags.deactivated)).arg(u8::from(key_record.flags.paused));
            invocation
                .arg(key_record.scope.name())
                .arg(key_record.daily_limit.min(DAILY_LIMIT_MAX))
                .arg(key_record.digest.as_bytes().as_slice());
            invocation.arg(previous_digest).arg(until_s).arg(day).arg(count).arg(previous_day).arg(previous_count);
            invocation.arg(key_record.id.as_str()).arg(previous_layout).arg(version).arg(expires_at_s);
            invocation.arg(burst_limit);
            invocation
        };
        let sent = Instant::now();
        let reply = self.run_script(request, build_invocation).await?;
        let reply = ScriptReply::from_value(&reply)?;
        request.node.sync_clock(reply.now()?, sent, Instant::now());
        if mode == FILL {
            // A log is evidence of charges after its start only. The next charge is later, also by the node's estimate.
            let behind_ms = (reply.now()?.0 + 1).saturating_sub(request.node.clock.now().0);
            sleep(AFTER_FILL_MAX.min(Duration::from_millis(behind_ms))).await;
        }
        reply.code()
    }

    /// Deletes the record of a deleted key. A concurrent fill fails.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn delete_key_record(&self, id: KeyId) -> Result<(), LedgerError> {
        let bucket = Bucket::of(id);
        let build_invocation = |_: &Incarnation| {
            let mut invocation = scripts::DELETE_RECORD.prepare_invoke();
            invocation.key(bucket.record_key(id)).key(bucket.log_key(id)).key(bucket.fence_key()).arg(random_nonce());
            invocation
        };
        self.run_script(&mut self.begin_request(bucket.slot()).await?, build_invocation).await?;
        for rest in [bucket.reconciled_key(id), bucket.previous_record_key(id)] {
            self.send_command::<()>(bucket.slot(), &Cmd::del(rest)).await?;
        }
        Ok(())
    }

    /// Whether the record of a key in Redis is paused. `false` if there is none.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn is_paused(&self, id: KeyId) -> Result<bool, LedgerError> {
        let bucket = Bucket::of(id);
        let position = column("paused").start as isize;
        let flag: Vec<u8> =
            self.send_command(bucket.slot(), &Cmd::getrange(bucket.record_key(id), position, position)).await?;
        Ok(flag == b"1")
    }
}
