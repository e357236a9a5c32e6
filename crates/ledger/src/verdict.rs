//! What the counter store says of a request.

use std::ops::Range;

use ipseity_domain::{DAY_S, DailyUsage, KeyId, KeyPause, PerSecondCounts, Scope, UtcDay};
use redis::Value;

use crate::error::LedgerError;

/// One verdict: made in one atomic step, with one `now` for everything that the answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The counter store does not know the key, or knows it from before it was restored: ask the durable store, and fill.
    Unknown(Fence),
    /// The id is known, the secret is not its.
    WrongSecret(LedgerTime),
    /// The key is deactivated.
    Inactive(LedgerTime),
    /// The key is paused.
    Paused(LedgerTime),
    /// This request exceeded the burst limit and paused the key.
    PausedNow(KeyPause),
    /// The day's quota is spent.
    QuotaExhausted {
        /// When, against which limit, in which day.
        quota: Quota,
    },
    /// Admitted and charged.
    Admitted {
        /// The key's scope.
        scope: Scope,
        /// When, against which limit, in which day.
        quota: Quota,
        /// The day before, as long as it waits to be rolled up.
        yesterday: Option<DailyUsage>,
        /// The key's window: a pause belongs to one.
        burst_epoch: u64,
    },
}

/// What stood in a bucket when a charge did not know a key; a fill shows it to prove that no change came in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub(crate) nonce: Vec<u8>,
    pub(crate) incarnation: String,
}

/// A moment by the counter store's clock: Unix time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerTime(pub u64);

impl LedgerTime {
    /// Whole seconds.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// The day of this moment.
    #[must_use]
    pub const fn day(self) -> UtcDay {
        #[expect(clippy::cast_possible_truncation, reason = "a u32 of days lasts eleven million years")]
        UtcDay((self.as_secs() / DAY_S) as u32)
    }
}

/// A day's limit and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// When the verdict was made.
    pub now: LedgerTime,
    /// Requests a day.
    pub limit: u64,
    /// The day that was charged, or would have been.
    pub day: UtcDay,
    /// Requests charged to it, this one included.
    pub used: u64,
}

impl Quota {
    /// Requests left today; never below 0, also after a plan was cut.
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
    /// Reads one of charge.lua's verdicts, and whether its record bore another store's stamp.
    pub(crate) fn parse(key: KeyId, incarnation: &str, reply: &[u8]) -> Result<(Self, bool), LedgerError> {
        let reply = ScriptReply(reply);
        let verdict = match reply.code()? {
            b'0' => return Ok((Self::Unknown(reply.fence(incarnation)?), reply.is_incarnation_mismatch())),
            b'1' => Self::WrongSecret(reply.now()?),
            b'2' => Self::Inactive(reply.now()?),
            b'3' => Self::Paused(reply.now()?),
            b'4' => Self::PausedNow(reply.pause(key)?),
            b'5' => Self::QuotaExhausted { quota: reply.exhausted_quota()? },
            b'6' => Self::Admitted {
                scope: reply.scope()?,
                quota: reply.quota()?,
                yesterday: reply.yesterday()?,
                burst_epoch: reply.number(63..72)?,
            },
            _ => return Err(LedgerError::UnexpectedReply("verdict")),
        };
        Ok((verdict, false))
    }
}

/// `12,0,…`: sixty numbers.
pub(crate) fn parse_pause_counts(text: &[u8]) -> Option<PerSecondCounts> {
    let counts: Option<Vec<u16>> = std::str::from_utf8(text).ok()?.split(',').map(|count| count.parse().ok()).collect();
    counts?.try_into().ok()
}

/// A script's reply: a digit that says which it is, and columns.
#[derive(Clone, Copy)]
pub(crate) struct ScriptReply<'a>(&'a [u8]);

impl<'a> ScriptReply<'a> {
    pub(crate) fn from_value(value: &'a Value) -> Result<Self, LedgerError> {
        if let Value::BulkString(bytes) = value { Ok(Self(bytes)) } else { Err(LedgerError::UnexpectedReply("reply")) }
    }

    pub(crate) fn code(self) -> Result<u8, LedgerError> {
        self.0.first().copied().ok_or(LedgerError::UnexpectedReply("reply"))
    }

    /// Of an unknown record: whether there is one, and it bears another store's stamp.
    pub(crate) fn is_incarnation_mismatch(self) -> bool {
        self.0.get(1) == Some(&b'1')
    }

    /// Of an unknown record: what stood in its bucket.
    pub(crate) fn fence(self, incarnation: &str) -> Result<Fence, LedgerError> {
        Ok(Fence { nonce: self.bytes(2..self.0.len())?.to_owned(), incarnation: incarnation.to_owned() })
    }

    fn bytes(self, columns: Range<usize>) -> Result<&'a [u8], LedgerError> {
        self.0.get(columns).ok_or(LedgerError::UnexpectedReply("length"))
    }

    fn number(self, columns: Range<usize>) -> Result<u64, LedgerError> {
        let digits = self.bytes(columns)?;
        let digit = |digit: &u8| digit.is_ascii_digit().then(|| u64::from(digit - b'0'));
        let number = digits.iter().try_fold(0, |number: u64, next| number.checked_mul(10)?.checked_add(digit(next)?));
        number.ok_or(LedgerError::UnexpectedReply("number"))
    }

    fn day(self, columns: Range<usize>) -> Result<UtcDay, LedgerError> {
        self.number(columns)?.try_into().map(UtcDay).map_err(|_| LedgerError::UnexpectedReply("day"))
    }

    fn now(self) -> Result<LedgerTime, LedgerError> {
        self.number(1..14).map(LedgerTime)
    }

    fn pause(self, key: KeyId) -> Result<KeyPause, LedgerError> {
        let counts = parse_pause_counts(self.bytes(23..self.0.len())?)
            .ok_or(LedgerError::UnexpectedReply("evidence of a pause"))?;
        Ok(KeyPause { key, burst_epoch: self.number(14..23)?, at_ms: self.now()?.0, counts })
    }

    pub(crate) fn quota(self) -> Result<Quota, LedgerError> {
        let (limit, day, used) = (self.number(51..63)?, self.day(14..20)?, self.number(20..32)?);
        Ok(Quota { now: self.now()?, limit, day, used })
    }

    /// A refusal for a spent day tells the limit, also where a plan was cut and more is used.
    pub(crate) fn exhausted_quota(self) -> Result<Quota, LedgerError> {
        let quota = self.quota()?;
        Ok(Quota { used: quota.limit, ..quota })
    }

    /// Absent as day 0.
    pub(crate) fn yesterday(self) -> Result<Option<DailyUsage>, LedgerError> {
        let used = DailyUsage { day: self.day(32..38)?, count: self.number(38..50)? };
        Ok(Some(used).filter(|used| used.day != UtcDay(0)))
    }

    fn scope(self) -> Result<Scope, LedgerError> {
        let name = std::str::from_utf8(self.bytes(72..76)?).map(str::trim_end);
        name.ok().and_then(Scope::parse).ok_or(LedgerError::UnexpectedReply("scope"))
    }

    /// What settle.lua adds.
    pub(crate) fn unverifiable(self) -> Result<u64, LedgerError> {
        self.number(76..self.0.len())
    }
}
