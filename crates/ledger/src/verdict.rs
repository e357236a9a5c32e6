//! What the counter store says of a request.

use domain::{DAY_S, Day, KeyId, Pause, PauseCounts, Scope, Used};
use redis::Value;

use crate::outage::LedgerError;

/// One verdict: made in one atomic step, with one `now` for everything that the answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The counter store does not know the key, or knows it from before it was restored: ask the durable store, and fill.
    Unknown(Fence),
    /// The id is known, the secret is not its.
    WrongSecret(Moment),
    /// The key is deactivated.
    Inactive(Moment),
    /// The key is paused.
    Paused(Moment),
    /// This request exceeded the burst limit and paused the key.
    PausedNow(Pause),
    /// The day's quota is spent.
    DaySpent {
        /// When, against which limit, in which day.
        charged: Charged,
    },
    /// Admitted and charged.
    Admitted {
        /// The key's scope.
        scope: Scope,
        /// When, against which limit, in which day.
        charged: Charged,
        /// The day before, as long as it waits to be rolled up.
        yesterday: Option<Used>,
        /// The key's window: a pause belongs to one.
        window: u64,
    },
}

/// What stood in a bucket when a charge did not know a key; a fill shows it to prove that no change came in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    pub(crate) nonce: Vec<u8>,
    pub(crate) stamp: String,
}

/// A moment by the counter store's clock: Unix time in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Whole seconds.
    #[must_use]
    pub const fn s(self) -> u64 {
        self.0 / 1000
    }

    /// The day of this moment.
    #[must_use]
    pub const fn day(self) -> Day {
        #[expect(clippy::cast_possible_truncation, reason = "a u32 of days lasts eleven million years")]
        Day((self.s() / DAY_S) as u32)
    }
}

/// A day's limit and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// When the verdict was made.
    pub now: Moment,
    /// Requests a day.
    pub limit: u64,
    /// The day that was charged, or would have been.
    pub day: Day,
    /// Requests charged to it, this one included.
    pub used: u64,
}

impl Charged {
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
        self.reset_s().saturating_sub(self.now.s())
    }
}

impl Verdict {
    /// Reads charge.lua's reply, and whether its record bore another store's stamp.
    pub(crate) fn parse(key: KeyId, stamp: &str, reply: &Value) -> Result<(Self, bool), LedgerError> {
        let reply = Reply::of(reply)?;
        let verdict = match reply.number(0)? {
            0 => {
                let fence = Fence { nonce: reply.bytes(1)?, stamp: stamp.to_owned() };
                return Ok((Self::Unknown(fence), reply.number(2)? == 1));
            }
            1 => Self::WrongSecret(Moment(reply.number(1)?)),
            2 => Self::Inactive(Moment(reply.number(1)?)),
            3 => Self::Paused(Moment(reply.number(1)?)),
            4 => {
                let counts = parse_counts(&reply.bytes(3)?).ok_or(LedgerError::Strange("evidence of a pause"))?;
                Self::PausedNow(Pause { key, window: reply.number(2)?, at_ms: reply.number(1)?, counts })
            }
            5 => Self::DaySpent { charged: reply.charged_at_limit()? },
            6 => {
                let scope = std::str::from_utf8(&reply.bytes(5)?).ok().and_then(Scope::parse);
                Self::Admitted {
                    scope: scope.ok_or(LedgerError::Strange("scope"))?,
                    charged: reply.charged()?,
                    yesterday: reply.yesterday()?,
                    window: reply.number(8)?,
                }
            }
            _ => return Err(LedgerError::Strange("verdict")),
        };
        Ok((verdict, false))
    }
}

/// `12,0,…`: sixty numbers.
pub(crate) fn parse_counts(text: &[u8]) -> Option<PauseCounts> {
    let counts: Option<Vec<u16>> = std::str::from_utf8(text).ok()?.split(',').map(|count| count.parse().ok()).collect();
    counts?.try_into().ok()
}

/// A script's reply: an array of integers and strings.
pub(crate) struct Reply<'a>(&'a [Value]);

impl<'a> Reply<'a> {
    pub(crate) fn of(value: &'a Value) -> Result<Self, LedgerError> {
        value.as_sequence().map(Self).ok_or(LedgerError::Strange("reply"))
    }

    pub(crate) fn number(&self, place: usize) -> Result<u64, LedgerError> {
        match self.0.get(place) {
            Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| LedgerError::Strange("number")),
            _ => Err(LedgerError::Strange("number")),
        }
    }

    pub(crate) fn bytes(&self, place: usize) -> Result<Vec<u8>, LedgerError> {
        match self.0.get(place) {
            Some(Value::BulkString(bytes)) => Ok(bytes.clone()),
            _ => Err(LedgerError::Strange("string")),
        }
    }

    fn day(&self, place: usize) -> Result<Day, LedgerError> {
        self.number(place)?.try_into().map(Day).map_err(|_| LedgerError::Strange("day"))
    }

    pub(crate) fn charged(&self) -> Result<Charged, LedgerError> {
        Ok(Charged { now: Moment(self.number(1)?), limit: self.number(2)?, day: self.day(3)?, used: self.number(4)? })
    }

    /// A refusal for a spent day does not say the count: it is the limit, or more after a plan was cut.
    fn charged_at_limit(&self) -> Result<Charged, LedgerError> {
        let limit = self.number(2)?;
        Ok(Charged { now: Moment(self.number(1)?), limit, day: self.day(3)?, used: limit })
    }

    /// Absent as a day of -1.
    pub(crate) fn yesterday(&self) -> Result<Option<Used>, LedgerError> {
        match self.0.get(6) {
            Some(Value::Int(-1)) => Ok(None),
            _ => Ok(Some(Used { day: self.day(6)?, count: self.number(7)? })),
        }
    }
}
