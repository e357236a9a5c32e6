//! The sweep: counts and pauses that PostgreSQL may not have yet. Any node can sweep, so the counts of a node that was
//! killed are not lost. The cost depends on the keys in use, not on the number of nodes.

use std::collections::HashMap;
use std::time::Duration;

use ipseity_domain::{DailyUsage, KeyId, KeyPause, LimitLevel, UtcDay, is_mutant, near_limit};
use redis::Cmd;

use crate::columns::{Column, column};
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::ledger_time::LedgerTime;
use crate::owner::Owner;
use crate::pauses::PendingPause;
use crate::recent_use::{near_burst_level, near_burst_position};
use crate::redis::identity::Incarnation;
use crate::scripts;
use crate::verdict::burst_limit_of;

/// Number of parts of a sweep, which are swept one after the other.
const PARTS: usize = 16;
/// Number of keys per bucket that a sweep reads at a time.
const FIELDS_MAX: usize = 32;
/// Number of keys that one call reads or confirms, so that it ends in time and delays no charge.
const KEYS_PER_CALL_MAX: usize = 256;
const FIRST: Column = column("today");
const LAST: Column = column("yesterday_count");
/// Read before and after the counts, to find keys near their burst limit.
const NEWEST_MS: Column = column("newest_ms");
const BURST_LIMIT_COLUMN: Column = column("burst_limit");
const DAILY_LIMIT_COLUMN: Column = column("daily_limit");

/// What a sweep has found.
#[derive(Default)]
pub struct Sweep {
    /// Counts to write to PostgreSQL, then to [`confirm_flush`](Ledger::confirm_flush).
    pub usage: Vec<UnflushedUsage>,
    /// Keys with counts above that were near their burst limit at their last request, for alerts.
    pub near_burst_limit: Vec<KeyId>,
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

/// Some of the keys of one server.
pub struct SweepPart(Vec<Bucket>);

impl Ledger {
    /// Claims the sweep of one server. Returns the parts to [`sweep`](Self::sweep), or `None` if another node claimed it within
    /// `interval`.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn claim_sweep(&self, owner: &Owner, interval: Duration) -> Result<Option<Vec<SweepPart>>, LedgerError> {
        let SweepPart(buckets) = self.all_parts(owner);
        let Some(first) = buckets.first() else { return Ok(None) };
        // Shorter than the interval, so that a single node never finds its previous claim.
        let lease_ms = u64::try_from(interval.as_millis() * 9 / 10).unwrap_or(u64::MAX).max(1);
        if !self.take_lease(*first, lease_ms).await? {
            return Ok(None);
        }
        let parts = buckets.chunks(buckets.len().div_ceil(PARTS));
        Ok(Some(parts.map(|buckets| SweepPart(buckets.to_vec())).collect()))
    }

    /// All keys of one server.
    #[must_use]
    pub fn all_parts(&self, owner: &Owner) -> SweepPart {
        SweepPart(Bucket::all().filter(|bucket| self.owner_of_slot(bucket.slot()) == *owner).collect())
    }

    async fn take_lease(&self, bucket: Bucket, lease_ms: u64) -> Result<bool, LedgerError> {
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

    /// Reads the counts and pauses of some keys.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn sweep(&self, SweepPart(buckets): &SweepPart) -> Result<Sweep, LedgerError> {
        if !self.have_unflushed(buckets).await? {
            return Ok(Sweep::default());
        }
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
            let (first, last) = (NEWEST_MS.start as isize, DAILY_LIMIT_COLUMN.end() as isize - 1);
            (bucket.slot(), Cmd::getrange(bucket.record_key(*key), first, last))
        };
        for keys in keys.chunks(KEYS_PER_CALL_MAX) {
            let records: Vec<Vec<u8>> = self.read_many(&keys.iter().map(read_columns).collect::<Vec<_>>()).await?;
            let mut busy = Vec::new();
            for (&key, columns) in keys.iter().zip(records) {
                let counts =
                    columns.get(FIRST.start - NEWEST_MS.start..LAST.end() - NEWEST_MS.start).unwrap_or_default();
                let days = parse_days(counts);
                busy.extend(parse_busy_key(key, &columns, &days));
                sweep.usage.push(UnflushedUsage { key, days, source: UsageSource::Record(counts.to_vec()) });
            }
            sweep.near_burst_limit.extend(self.keys_near_burst_limit(&busy).await?);
        }
        let read_pauses = |bucket: &Bucket| (bucket.slot(), Cmd::hgetall(bucket.pending_pauses_key()));
        let pending: Vec<HashMap<String, String>> =
            self.read_many(&buckets.iter().map(read_pauses).collect::<Vec<_>>()).await?;
        for pending in pending.iter().flatten().filter_map(|(field, value)| PendingPause::parse(field, value)) {
            sweep.pauses.push(self.complete_pause(pending).await?);
        }
        Ok(sweep)
    }

    /// Whether buckets have counts or pauses to flush, in one command. In a cluster, where a command concerns one slot, they may.
    async fn have_unflushed(&self, buckets: &[Bucket]) -> Result<bool, LedgerError> {
        let Some(first) = buckets.first() else { return Ok(false) };
        let mut request = self.begin_request(first.slot()).await?;
        if request.connection.identity.is_cluster {
            return Ok(true);
        }
        let mut exists = redis::cmd("EXISTS");
        for bucket in buckets {
            exists.arg(bucket.unflushed_key()).arg(bucket.pending_pauses_key());
        }
        Ok(self.send_command_on::<u64>(&mut request, &exists).await? > 0)
    }

    /// Of busy keys, those that were near their burst limit at their last request. The request counts by the log, so it does not matter
    /// which node received it.
    async fn keys_near_burst_limit(&self, busy: &[BusyKey]) -> Result<Vec<KeyId>, LedgerError> {
        let read_entry = |busy: &BusyKey| {
            let bucket = Bucket::of(busy.key);
            (bucket.slot(), Cmd::lindex(bucket.log_key(busy.key), near_burst_position(busy.burst_limit)))
        };
        let entries: Vec<Vec<u8>> = self.read_many(&busy.iter().map(read_entry).collect::<Vec<_>>()).await?;
        let is_near = |(busy, entry): &(&BusyKey, Vec<u8>)| near_burst_level(entry, busy.newest) == LimitLevel::Near;
        Ok(busy.iter().zip(entries).filter(is_near).map(|(busy, _)| busy.key).collect())
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

/// A key with enough requests to be near its burst limit.
struct BusyKey {
    key: KeyId,
    burst_limit: usize,
    newest: LedgerTime,
}

/// `None` for a key that cannot be near its burst limit, which nearly all are, so that its log is not read.
fn parse_busy_key(key: KeyId, columns: &[u8], days: &[DailyUsage]) -> Option<BusyKey> {
    let number_at = |column: Column| {
        let range = column.start - NEWEST_MS.start..column.end() - NEWEST_MS.start;
        std::str::from_utf8(columns.get(range)?).ok()?.parse::<u64>().ok()
    };
    let (newest, burst_limit) = (LedgerTime(number_at(NEWEST_MS)?), burst_limit_of(number_at(BURST_LIMIT_COLUMN)?));
    let requests: u64 = days.iter().map(|usage| usage.count).sum();
    // Requests above the daily limit are not in the counts, but count toward the burst limit.
    let daily_limit = number_at(DAILY_LIMIT_COLUMN)?;
    let is_busy = requests >= near_limit(burst_limit as u64) || days.iter().any(|usage| usage.count >= daily_limit);
    is_busy.then_some(BusyKey { key, burst_limit, newest })
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
