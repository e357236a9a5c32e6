//! The status of a key, for the client that has its secret. It is only read: no verdict depends on it, and nothing is
//! written.

use ipseity_domain::{ApiKey, BURST_WINDOW_S, KeyFlags, KeyRecord, Scope};
use redis::Cmd;

use crate::columns::{Column, column};
use crate::error::LedgerError;
use crate::layout::Bucket;
use crate::ledger::Ledger;
use crate::ledger_time::LedgerTime;
use crate::usage::parse_usage;
use crate::verdict::burst_limit_of;

const DIGEST: Column = column("digest");
const PAUSED: Column = column("paused");
const TODAY: Column = column("today");
const TODAY_COUNT: Column = column("today_count");
const DEACTIVATED: Column = column("deactivated");
const BURST_LIMIT_COLUMN: Column = column("burst_limit");
const DAILY_LIMIT: Column = column("daily_limit");
const SCOPE: Column = column("scope");
const PREVIOUS_DIGEST: Column = column("previous_digest");
const PREVIOUS_EXPIRES: Column = column("previous_expires_s");
const RESTRICTION_VERSION: Column = column("restriction_version");
const ENTRY_MS: Column = column("entry_ms");

/// What is known of a key at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySnapshot {
    /// The key's scope.
    pub scope: Scope,
    /// Whether the key is deactivated or paused.
    pub flags: KeyFlags,
    /// Requests per day.
    pub daily_limit: u64,
    /// Requests in any 60 seconds.
    pub burst_limit: usize,
    /// The version of the key's restrictions, 0 if it was never restricted.
    pub restriction_version: u64,
    /// `None` while Redis, which counts, does not answer.
    pub counts: Option<KeyCounts>,
}

/// The requests of a key that count toward its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyCounts {
    /// Toward the daily quota, today.
    pub day: u64,
    /// Toward the burst limit, in the last 60 seconds.
    pub burst: u64,
}

/// What Redis has about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundStatus {
    /// No record. PostgreSQL may have the key, and then has all its requests.
    NoRecord,
    /// A record that cannot be trusted. PostgreSQL may lack requests of the key.
    Untrusted,
    /// The key id is known, but the secret is wrong.
    WrongSecret,
    /// The status of the key.
    Status(KeySnapshot),
}

impl KeySnapshot {
    /// The status by a record of PostgreSQL. If Redis answers and has no record, the key has made no request that
    /// PostgreSQL does not have.
    #[must_use]
    pub fn of_record(record: &KeyRecord, now: LedgerTime, has_counts: bool) -> Self {
        let usage = [record.usage, record.previous_usage].into_iter().flatten();
        let day = usage.filter(|usage| usage.day >= now.day()).map(|usage| usage.count).next().unwrap_or(0);
        Self {
            scope: record.scope,
            flags: record.flags,
            daily_limit: record.daily_limit,
            burst_limit: record.burst_limit,
            restriction_version: record.restrictions.as_ref().map_or(0, |versioned| versioned.version),
            counts: has_counts.then_some(KeyCounts { day, burst: 0 }),
        }
    }
}

impl Ledger {
    /// Reads the status of a key.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn key_status(&self, key: &ApiKey) -> Result<FoundStatus, LedgerError> {
        let bucket = Bucket::of(key.id);
        let mut request = self.begin_request(bucket.slot()).await?;
        let record: Vec<u8> = self.send_command_on(&mut request, &Cmd::get(bucket.record_key(key.id))).await?;
        if record.is_empty() {
            return Ok(FoundStatus::NoRecord);
        }
        if !record.starts_with(request.connection.incarnation().as_bytes()) {
            return Ok(FoundStatus::Untrusted);
        }
        let now = self.owner_of(key.id).now();
        if !accepts_secret(&record, key, now) {
            return Ok(FoundStatus::WrongSecret);
        }
        let log: Vec<Vec<u8>> = self.send_command_on(&mut request, &Cmd::lrange(bucket.log_key(key.id), 0, -1)).await?;
        Ok(parse_status(&record, &log, now).map_or(FoundStatus::Untrusted, FoundStatus::Status))
    }
}

fn accepts_secret(record: &[u8], key: &ApiKey, now: LedgerTime) -> bool {
    let is_digest = |column| bytes(record, column) == Some(key.digest.as_bytes());
    is_digest(DIGEST)
        || is_digest(PREVIOUS_DIGEST) && number(record, PREVIOUS_EXPIRES).is_some_and(|s| now.as_secs() < s)
}

fn parse_status(record: &[u8], log: &[Vec<u8>], now: LedgerTime) -> Option<KeySnapshot> {
    // A clock that was set back does not reopen a day.
    let usage = parse_usage(record.get(TODAY.start..TODAY_COUNT.end())?).filter(|usage| usage.day >= now.day());
    Some(KeySnapshot {
        scope: Scope::parse(std::str::from_utf8(bytes(record, SCOPE)?).ok()?.trim_end())?,
        flags: KeyFlags { deactivated: number(record, DEACTIVATED)? == 1, paused: number(record, PAUSED)? == 1 },
        daily_limit: number(record, DAILY_LIMIT)?,
        burst_limit: burst_limit_of(number(record, BURST_LIMIT_COLUMN)?),
        restriction_version: if record.len() > PREVIOUS_EXPIRES.end() {
            number(record, RESTRICTION_VERSION)?
        } else {
            0
        },
        counts: Some(KeyCounts {
            day: usage.map_or(0, |usage| usage.count),
            burst: log.iter().filter(|entry| is_in_burst_window(entry, now)).count() as u64,
        }),
    })
}

/// Whether an entry of a key's log still counts toward the burst limit.
pub(crate) fn is_in_burst_window(entry: &[u8], now: LedgerTime) -> bool {
    number(entry, ENTRY_MS).is_some_and(|ms| ms + BURST_WINDOW_S * 1000 > now.0)
}

fn bytes(text: &[u8], column: Column) -> Option<&[u8]> {
    text.get(column.start..column.end())
}

pub(crate) fn number(text: &[u8], column: Column) -> Option<u64> {
    std::str::from_utf8(bytes(text, column)?).ok()?.parse().ok()
}
