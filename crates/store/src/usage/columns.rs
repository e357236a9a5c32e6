//! How the tables of usage store reasons and days.

use ipseity_domain::UtcDay;

/// Why a request with a known key id was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefusalReason {
    /// The key is deactivated.
    Inactive,
    /// The key is paused.
    Paused,
    /// The request paused the key.
    Burst,
    /// The daily quota is exhausted.
    QuotaExhausted,
    /// The secret is wrong.
    WrongSecret,
    /// The restrictions of the key refuse the request.
    Restricted,
}

/// The reasons, in the order of [`UsageRow::refused`](crate::UsageRow::refused).
const REASONS: [RefusalReason; 6] = [
    RefusalReason::Burst,
    RefusalReason::Paused,
    RefusalReason::Inactive,
    RefusalReason::QuotaExhausted,
    RefusalReason::WrongSecret,
    RefusalReason::Restricted,
];

impl RefusalReason {
    /// The name in the database and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Paused => "paused",
            Self::Burst => "burst",
            Self::QuotaExhausted => "day",
            Self::WrongSecret => "wrong_secret",
            Self::Restricted => "restricted",
        }
    }
}

/// The position of a reason in [`UsageRow::refused`](crate::UsageRow::refused).
pub(crate) fn reason_index(name: &str) -> Option<usize> {
    REASONS.iter().position(|reason| reason.name() == name)
}

pub(crate) fn day_number(day: UtcDay) -> i32 {
    i32::try_from(day.0).unwrap_or(i32::MAX)
}
