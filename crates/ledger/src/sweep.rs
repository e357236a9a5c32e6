//! The sweep: counts and pauses that PostgreSQL may not have yet. Any node can sweep, so the counts of a node that was
//! killed are not lost. The cost depends on the keys in use, not on the number of nodes.

use std::collections::HashMap;
use std::time::Duration;

use ipseity_domain::{DailyUsage, KeyId, KeyPause, UtcDay, is_mutant};
use redis::Cmd;

use crate::columns::{Column, column};
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::owner::Owner;
use crate::pauses::PendingPause;
use crate::redis::identity::Incarnation;
use crate::scripts;

/// Number of keys per bucket that a sweep reads at a time.
const FIELDS_MAX: usize = 32;
/// Number of keys that one call reads or confirms, so that it ends in time and delays no charge.
const KEYS_PER_CALL_MAX: usize = 256;
const FIRST: Column = column("today");
const LAST: Column = column("yesterday_count");

/// What a sweep has found.
#[derive(Default)]
pub struct Sweep {
    /// Counts to write to PostgreSQL, then to [`confirm_flush`](Ledger::confirm_flush).
    pub usage: Vec<UnflushedUsage>,
    /// Pauses to record in PostgreSQL, then to [mark](Ledger::mark_pause_recorded).
    pub pauses: Vec<KeyPause>,
    /// Whether there is more.
    pub has_more: bool,
}

/// Counts of one key.
pub struct UnflushedUsage {
    /// The key.
    pub key: KeyId,
    /// Absolute counts by day.
    pub days: Vec<DailyUsage>,
    source: UsageSource,
}

enum UsageSource {
    /// The columns of the record. Empty if there is none.
    Record(Vec<u8>),
    /// A field of the hash of unflushed counts, and its value.
    Field(String, String),
}

impl Ledger {
    /// Reads the counts and pauses at one server. Returns `None` if another node did so within `interval`.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn sweep(&self, owner: &Owner, interval: Duration) -> Result<Option<Sweep>, LedgerError> {
        let buckets: Vec<Bucket> = Bucket::all().filter(|bucket| self.owner_of_slot(bucket.slot()) == *owner).collect();
        let Some(first) = buckets.first() else { return Ok(None) };
        // Shorter than the interval, so that a single node never finds its previous claim.
        let lease_ms = u64::try_from(interval.as_millis() * 9 / 10).unwrap_or(u64::MAX).max(1);
        if !self.claim_sweep(*first, lease_ms).await? {
            return Ok(None);
        }
        self.sweep_buckets(&buckets).await.map(Some)
    }

    async fn claim_sweep(&self, bucket: Bucket, lease_ms: u64) -> Result<bool, LedgerError> {
        let (key, slot) = (bucket.sweep_lease_key(), bucket.slot());
        let mut claim = redis::cmd("SET");
        claim.arg(&key).arg(1).arg("NX").arg("PX").arg(lease_ms);
        if self.send_command::<Option<String>>(slot, &claim).await?.is_some() {
            return Ok(true);
        }
        // A lease that was taken while the clock was ahead would last until that time.
        let remaining_ms: i64 = self.send_command(slot, &Cmd::pttl(&key)).await?;
        if !u64::try_from(remaining_ms).is_ok_and(|remaining_ms| remaining_ms > lease_ms) {
            return Ok(false);
        }
        self.send_command::<()>(slot, &Cmd::pset_ex(&key, 1, lease_ms)).await?;
        Ok(true)
    }

    /// Reads what [`sweep`](Self::sweep) left, or another node has not swept yet.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn sweep_rest(&self, owner: &Owner) -> Result<Sweep, LedgerError> {
        let buckets: Vec<Bucket> = Bucket::all().filter(|bucket| self.owner_of_slot(bucket.slot()) == *owner).collect();
        self.sweep_buckets(&buckets).await
    }

    async fn sweep_buckets(&self, buckets: &[Bucket]) -> Result<Sweep, LedgerError> {
        let mut sweep = Sweep::default();
        let read_fields = |bucket: &Bucket| {
            let mut command = redis::cmd("HRANDFIELD");
            command.arg(bucket.unflushed_key()).arg(FIELDS_MAX).arg("WITHVALUES");
            (bucket.slot(), command)
        };
        let fields: Vec<Vec<(String, String)>> =
            self.read_many(&buckets.iter().map(read_fields).collect::<Vec<_>>()).await?;
        sweep.has_more = fields.iter().any(|fields| fields.len() == FIELDS_MAX);
        let mut keys = Vec::new();
        for (field, count) in fields.into_iter().flatten() {
            if let Some(key) = KeyId::parse(&field) {
                keys.push(key);
            } else if let Some((key, usage)) = parse_count_field(&field, &count)
                && !is_mutant("sweep-skips-earlier-days")
            {
                sweep.usage.push(UnflushedUsage { key, days: vec![usage], source: UsageSource::Field(field, count) });
            }
        }
        let read_columns = |key: &KeyId| {
            let bucket = Bucket::of(*key);
            // GETRANGE includes its end.
            let (first, last) = (FIRST.start as isize, LAST.end() as isize - 1);
            (bucket.slot(), Cmd::getrange(bucket.record_key(*key), first, last))
        };
        for keys in keys.chunks(KEYS_PER_CALL_MAX) {
            let records: Vec<Vec<u8>> = self.read_many(&keys.iter().map(read_columns).collect::<Vec<_>>()).await?;
            for (&key, columns) in keys.iter().zip(records) {
                let days = parse_days(&columns);
                sweep.usage.push(UnflushedUsage { key, days, source: UsageSource::Record(columns) });
            }
        }
        let read_pauses = |bucket: &Bucket| (bucket.slot(), Cmd::hgetall(bucket.pending_pauses_key()));
        let pending: Vec<HashMap<String, String>> =
            self.read_many(&buckets.iter().map(read_pauses).collect::<Vec<_>>()).await?;
        for pending in pending.iter().flatten().filter_map(|(field, value)| PendingPause::parse(field, value)) {
            sweep.pauses.push(self.complete_pause(pending).await?);
        }
        Ok(sweep)
    }

    /// Marks counts of one server as flushed. A count that has changed since is found by the next sweep.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn confirm_flush(&self, flushed: &[UnflushedUsage]) -> Result<(), LedgerError> {
        let Some(first) = flushed.first() else { return Ok(()) };
        let request = self.begin_request(Bucket::of(first.key).slot()).await?;
        let mut usages: Vec<&UnflushedUsage> = flushed.iter().collect();
        usages.sort_by_key(|usage| Bucket::of(usage.key));
        // In a cluster, all keys of a call must be in one slot.
        let is_one_call = |a: &&UnflushedUsage, b: &&UnflushedUsage| {
            !request.connection.identity.is_cluster || Bucket::of(a.key) == Bucket::of(b.key)
        };
        for usages in usages.chunk_by(is_one_call).flat_map(|usages| usages.chunks(KEYS_PER_CALL_MAX)) {
            let build_invocation = |_: &Incarnation| {
                let mut invocation = scripts::CONFIRM_FLUSH.prepare_invoke();
                for usage in usages {
                    let bucket = Bucket::of(usage.key);
                    invocation.key(bucket.unflushed_key()).key(bucket.record_key(usage.key));
                    match &usage.source {
                        UsageSource::Record(columns) => invocation.arg(usage.key.as_str()).arg(columns),
                        UsageSource::Field(field, count) => invocation.arg(field).arg(count),
                    };
                }
                invocation
            };
            let slot = Bucket::of(usages[0].key).slot();
            self.run_script(&mut self.begin_request(slot).await?, build_invocation).await?;
        }
        Ok(())
    }
}

/// Parses `<key id>:<day>` and the count.
pub(crate) fn parse_count_field(field: &str, count: &str) -> Option<(KeyId, DailyUsage)> {
    let (key, day) = field.split_once(':')?;
    Some((KeyId::parse(key)?, DailyUsage { day: UtcDay(day.parse().ok()?), count: count.parse().ok()? }))
}

/// Parses the columns `today` to `yesterday_count`. Days without requests are left out.
pub(crate) fn parse_days(columns: &[u8]) -> Vec<DailyUsage> {
    let number = |name: &str| -> Option<u64> {
        let column = column(name);
        let range = column.start - FIRST.start..column.end() - FIRST.start;
        std::str::from_utf8(columns.get(range)?).ok()?.parse().ok()
    };
    let usage = |day: &str, count: &str| {
        Some(DailyUsage { day: UtcDay(u32::try_from(number(day)?).ok()?), count: number(count)? })
    };
    let days = [usage("today", "today_count"), usage("yesterday", "yesterday_count")];
    days.into_iter().flatten().filter(|usage| usage.count > 0).collect()
}
