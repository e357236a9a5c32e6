//! Verdicts and the replies of the Lua scripts that they are parsed from.

use std::ops::Range;

use ipseity_domain::{BURST_LIMIT, DailyUsage, Scope, UtcDay};
use redis::Value;

use crate::columns::{Column, column};
use crate::error::LedgerError;
use crate::ledger_time::LedgerTime;
use crate::redis::identity::Incarnation;

/// The result of a charge. One atomic step makes it, so everything in it holds at the same `now`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Redis has no record of the key, or one of another incarnation. Read the key from PostgreSQL, then call
    /// [`fill`](crate::Ledger::fill).
    Unknown(Fence),
    /// The key id is known, but the secret is wrong.
    WrongSecret(LedgerTime),
    /// The key is deactivated.
    Inactive(LedgerTime),
    /// The key is paused.
    Paused {
        /// When the verdict was made.
        now: LedgerTime,
        /// The key's burst limit.
        burst_limit: usize,
    },
    /// The key has expired.
    Expired(LedgerTime),
    /// The key has newer restrictions than those that were applied. The request is not charged. Read the restrictions
    /// from PostgreSQL, apply them, and charge again with the same id.
    Outdated {
        /// When the verdict was made.
        now: LedgerTime,
        /// The version of the key's restrictions.
        version: u64,
    },
    /// The restrictions that were applied refuse the request. It is not counted.
    Restricted(LedgerTime),
    /// This request exceeded the burst limit and paused the key. [`pause_evidence`](crate::Ledger::pause_evidence) has
    /// the requests before it.
    PausedNow {
        /// When it was paused.
        now: LedgerTime,
        /// The burst epoch of the pause.
        burst_epoch: u64,
        /// The burst limit that was exceeded.
        burst_limit: usize,
    },
    /// The daily quota is exhausted.
    QuotaExhausted {
        /// The state of the quota.
        quota: Quota,
    },
    /// The request is admitted and charged.
    Admitted {
        /// The key's scope.
        scope: Scope,
        /// The state of the quota after this request.
        quota: Quota,
        /// The key's burst epoch.
        burst_epoch: u64,
        /// Whether the slot of the charge is open: its remote node may admit further requests of the key before they are
        /// charged.
        is_open: bool,
    },
}

/// A token of a charge that found no record. A fill with it fails if the key has changed since that charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub(crate) nonce: Vec<u8>,
    pub(crate) incarnation: Incarnation,
}

/// The limits of a key, and how much of the daily quota is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// When the verdict was made.
    pub now: LedgerTime,
    /// Requests per day.
    pub limit: u64,
    /// The day that the request belongs to.
    pub day: UtcDay,
    /// Requests charged to that day, including this one.
    pub used: u64,
    /// Requests in any 60 seconds. It means nothing for the demo, which has no such limit.
    pub burst_limit: usize,
}

impl Quota {
    /// Requests left today. The result is 0 if the limit was lowered below the number of used requests.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Unix time of the next reset, in seconds.
    #[must_use]
    pub const fn reset_s(&self) -> u64 {
        self.day.end_s()
    }

    /// Seconds until the next reset.
    #[must_use]
    pub const fn retry_after_s(&self) -> u64 {
        self.reset_s().saturating_sub(self.now.as_secs())
    }
}

impl Verdict {
    /// Parses one verdict of `charge.lua`.
    pub(crate) fn parse(incarnation: Incarnation, reply: ScriptReply<'_>) -> Result<Self, LedgerError> {
        Ok(match reply.code()? {
            b'0' => Self::Unknown(reply.fence(incarnation)?),
            b'1' => Self::WrongSecret(reply.now()?),
            b'2' => Self::Inactive(reply.now()?),
            b'3' => Self::Paused { now: reply.now()?, burst_limit: reply.burst_limit(PAUSED_BURST_LIMIT)? },
            b'E' => Self::Expired(reply.now()?),
            b'O' => Self::Outdated { now: reply.now()?, version: reply.number(OUTDATED_VERSION)? },
            b'R' => Self::Restricted(reply.now()?),
            b'4' => Self::PausedNow {
                now: reply.now()?,
                burst_epoch: reply.number(PAUSE_BURST_EPOCH)?,
                burst_limit: reply.burst_limit(PAUSE_BURST_LIMIT)?,
            },
            b'5' => Self::QuotaExhausted { quota: reply.exhausted_quota()? },
            b'6' => Self::Admitted {
                scope: reply.scope()?,
                quota: reply.quota()?,
                burst_epoch: reply.number(BURST_EPOCH)?,
                is_open: reply.0.get(SCOPE.end) == Some(&b'+'),
            },
            _ => return Err(LedgerError::UnexpectedReply("verdict")),
        })
    }
}

/// The reply of a script. The first byte is its code.
///
/// Codes 5 and 6 are followed by the record's columns `newest_ms` to `scope`, all others but 0 by the first of them.
#[derive(Clone, Copy)]
pub(crate) struct ScriptReply<'a>(pub(crate) &'a [u8]);

/// Code of a call that was delivered too late to be applied.
pub(crate) const CODE_EXPIRED: u8 = b'7';
/// Code of a batch with a charge that may still be applied.
pub(crate) const CODE_TOO_EARLY: u8 = b'8';

const FIRST: Column = column("newest_ms");
const NOW: Range<usize> = reply_range("newest_ms");
const TODAY: Range<usize> = reply_range("today");
const TODAY_COUNT: Range<usize> = reply_range("today_count");
const YESTERDAY: Range<usize> = reply_range("yesterday");
const YESTERDAY_COUNT: Range<usize> = reply_range("yesterday_count");
const BURST_LIMIT_COLUMN: Range<usize> = reply_range("burst_limit");
const DAILY_LIMIT: Range<usize> = reply_range("daily_limit");
const BURST_EPOCH: Range<usize> = reply_range("burst_epoch");
const SCOPE: Range<usize> = reply_range("scope");
/// Code 3: the time is followed by the burst limit.
const PAUSED_BURST_LIMIT: Range<usize> = NOW.end..NOW.end + column("burst_limit").width;
/// Code 4: the time is followed by the burst epoch and the burst limit.
const PAUSE_BURST_EPOCH: Range<usize> = NOW.end..NOW.end + column("burst_epoch").width;
const PAUSE_BURST_LIMIT: Range<usize> = PAUSE_BURST_EPOCH.end..PAUSE_BURST_EPOCH.end + column("burst_limit").width;
/// Code O: the time is followed by the version of the restrictions.
const OUTDATED_VERSION: Range<usize> = NOW.end..NOW.end + column("restriction_version").width;

/// The burst limit by its column.
pub(crate) fn burst_limit_of(number: u64) -> usize {
    if number == 0 { BURST_LIMIT } else { usize::try_from(number).unwrap_or(usize::MAX) }
}

const fn reply_range(column_name: &str) -> Range<usize> {
    let column = column(column_name);
    let start = 1 + column.start - FIRST.start;
    start..start + column.width
}

impl<'a> ScriptReply<'a> {
    pub(crate) fn from_value(value: &'a Value) -> Result<Self, LedgerError> {
        if let Value::BulkString(bytes) = value { Ok(Self(bytes)) } else { Err(LedgerError::UnexpectedReply("type")) }
    }

    pub(crate) fn code(self) -> Result<u8, LedgerError> {
        self.0.first().copied().ok_or(LedgerError::UnexpectedReply("length"))
    }

    /// Whether there is a record that is not trusted: of another incarnation, or unreadable.
    pub(crate) fn is_incarnation_mismatch(self) -> bool {
        self.0.starts_with(b"01")
    }

    /// Code 0: the fence of the key's bucket.
    pub(crate) fn fence(self, incarnation: Incarnation) -> Result<Fence, LedgerError> {
        Ok(Fence { nonce: self.bytes(2..self.0.len())?.to_owned(), incarnation })
    }

    fn bytes(self, range: Range<usize>) -> Result<&'a [u8], LedgerError> {
        self.0.get(range).ok_or(LedgerError::UnexpectedReply("length"))
    }

    fn number(self, range: Range<usize>) -> Result<u64, LedgerError> {
        let digits = self.bytes(range)?;
        let digit = |digit: &u8| digit.is_ascii_digit().then(|| u64::from(digit - b'0'));
        let number = digits.iter().try_fold(0, |number: u64, next| number.checked_mul(10)?.checked_add(digit(next)?));
        number.ok_or(LedgerError::UnexpectedReply("number"))
    }

    fn day(self, range: Range<usize>) -> Result<UtcDay, LedgerError> {
        self.number(range)?.try_into().map(UtcDay).map_err(|_| LedgerError::UnexpectedReply("day"))
    }

    /// All codes but 0: when the verdict was made.
    pub(crate) fn now(self) -> Result<LedgerTime, LedgerError> {
        self.number(NOW).map(LedgerTime)
    }

    /// All codes but 0: when the script ran, by the clock of the server. A verdict is not earlier than others of its key. If
    /// the clock was set back, it follows at the end.
    pub(crate) fn clock(self) -> Result<LedgerTime, LedgerError> {
        let start = self.0.len().saturating_sub(NOW.len());
        let is_behind = start > 0 && self.0[start - 1] == b'@';
        let clock = if is_behind { self.number(start..self.0.len()) } else { self.number(NOW) };
        clock.map(LedgerTime)
    }

    pub(crate) fn quota(self) -> Result<Quota, LedgerError> {
        let (limit, day, used) = (self.number(DAILY_LIMIT)?, self.day(TODAY)?, self.number(TODAY_COUNT)?);
        Ok(Quota { now: self.now()?, limit, day, used, burst_limit: self.burst_limit(BURST_LIMIT_COLUMN)? })
    }

    fn burst_limit(self, range: Range<usize>) -> Result<usize, LedgerError> {
        self.number(range).map(burst_limit_of)
    }

    /// Reports `used` as the limit, even if the limit was lowered and more is used.
    pub(crate) fn exhausted_quota(self) -> Result<Quota, LedgerError> {
        let quota = self.quota()?;
        Ok(Quota { used: quota.limit, ..quota })
    }

    /// Day 0 means that there is none.
    pub(crate) fn yesterday(self) -> Result<Option<DailyUsage>, LedgerError> {
        let usage = DailyUsage { day: self.day(YESTERDAY)?, count: self.number(YESTERDAY_COUNT)? };
        Ok(Some(usage).filter(|usage| usage.day != UtcDay(0)))
    }

    fn scope(self) -> Result<Scope, LedgerError> {
        let name = std::str::from_utf8(self.bytes(SCOPE)?).map(str::trim_end);
        name.ok().and_then(Scope::parse).ok_or(LedgerError::UnexpectedReply("scope"))
    }

    /// The number that `reconcile.lua` appends: charges that it could not verify.
    pub(crate) fn unverifiable(self) -> Result<u64, LedgerError> {
        self.number(SCOPE.end..self.0.len())
    }
}
