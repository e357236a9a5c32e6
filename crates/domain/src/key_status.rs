//! The status of a key: what its next request can expect, in the same words on pages, in emails, in the API and on the
//! command line.

use crate::record::KeyState;

/// How much of a limit is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitLevel {
    /// Less than four fifths.
    #[default]
    Normal,
    /// At least four fifths.
    Near,
    /// All of it.
    Reached,
}

impl LimitLevel {
    /// The level of a limit that this many requests count toward.
    #[must_use]
    pub const fn of(used: u64, limit: u64) -> Self {
        if used >= limit {
            Self::Reached
        } else if used >= near_limit(limit) {
            Self::Near
        } else {
            Self::Normal
        }
    }
}

/// The number of requests that is near a limit: at least 80%.
#[must_use]
pub const fn near_limit(limit: u64) -> u64 {
    limit - limit / 5
}

/// The status of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// Requests are admitted.
    Active,
    /// Requests are admitted, and at least 80% of the daily limit is used.
    NearDailyLimit,
    /// Requests are admitted, and at least 80% of the burst limit is used.
    NearBurstLimit,
    /// Requests are rejected until the daily limit resets.
    DailyLimitReached,
    /// Requests are rejected, because the key has expired.
    Expired,
    /// Requests are rejected until the owner resumes the key.
    Paused,
    /// Requests are rejected until the key is reactivated.
    Deactivated,
}

impl KeyStatus {
    /// All of them. If several apply, the later one is the status.
    pub const ALL: [Self; 7] = [
        Self::Active,
        Self::NearDailyLimit,
        Self::NearBurstLimit,
        Self::DailyLimitReached,
        Self::Expired,
        Self::Paused,
        Self::Deactivated,
    ];

    /// The status that follows from the facts. A level that is not known is [`LimitLevel::Normal`].
    ///
    /// A key that has used all of its burst limit is still near it: only the next request pauses the key.
    #[must_use]
    pub const fn of(state: KeyState, is_expired: bool, day: LimitLevel, burst: LimitLevel) -> Self {
        match (state, day, burst) {
            (KeyState::Inactive, ..) => Self::Deactivated,
            (KeyState::Paused, ..) => Self::Paused,
            (KeyState::Active, ..) if is_expired => Self::Expired,
            (KeyState::Active, LimitLevel::Reached, _) => Self::DailyLimitReached,
            (KeyState::Active, _, LimitLevel::Near | LimitLevel::Reached) => Self::NearBurstLimit,
            (KeyState::Active, LimitLevel::Near, LimitLevel::Normal) => Self::NearDailyLimit,
            (KeyState::Active, LimitLevel::Normal, LimitLevel::Normal) => Self::Active,
        }
    }

    /// The words for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::NearDailyLimit => "Near daily limit",
            Self::NearBurstLimit => "Near burst limit",
            Self::DailyLimitReached => "Daily limit reached",
            Self::Expired => "Expired",
            Self::Paused => "Paused",
            Self::Deactivated => "Deactivated",
        }
    }

    /// The name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::NearDailyLimit => "near_daily_limit",
            Self::NearBurstLimit => "near_burst_limit",
            Self::DailyLimitReached => "daily_limit_reached",
            Self::Expired => "expired",
            Self::Paused => "paused",
            Self::Deactivated => "deactivated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_near_from_80_percent() {
        for (used, limit, level) in [
            (0, 10_000, LimitLevel::Normal),
            (7_999, 10_000, LimitLevel::Normal),
            (8_000, 10_000, LimitLevel::Near),
            (9_999, 10_000, LimitLevel::Near),
            (10_000, 10_000, LimitLevel::Reached),
            (10_400, 10_000, LimitLevel::Reached),
            (239, 300, LimitLevel::Normal),
            (240, 300, LimitLevel::Near),
            (5, 7, LimitLevel::Normal),
            (6, 7, LimitLevel::Near),
            (0, 1, LimitLevel::Normal),
            (1, 1, LimitLevel::Reached),
        ] {
            assert_eq!(LimitLevel::of(used, limit), level, "{used} of {limit}");
        }
    }

    #[test]
    fn the_status_that_rejects_requests_longest_wins() {
        use KeyState::{Active, Inactive, Paused};
        use LimitLevel::{Near, Normal, Reached};
        for (state, is_expired, day, burst, label) in [
            (Active, false, Normal, Normal, "Active"),
            (Active, false, Near, Normal, "Near daily limit"),
            (Active, false, Normal, Near, "Near burst limit"),
            (Active, false, Near, Near, "Near burst limit"),
            (Active, false, Normal, Reached, "Near burst limit"),
            (Active, false, Reached, Normal, "Daily limit reached"),
            (Active, false, Reached, Near, "Daily limit reached"),
            (Active, true, Normal, Normal, "Expired"),
            (Active, true, Reached, Reached, "Expired"),
            (Paused, false, Reached, Reached, "Paused"),
            (Paused, true, Normal, Normal, "Paused"),
            (Inactive, false, Normal, Normal, "Deactivated"),
            (Inactive, true, Reached, Reached, "Deactivated"),
        ] {
            let status = KeyStatus::of(state, is_expired, day, burst);
            assert_eq!(status.label(), label, "{state:?}, expired {is_expired}, {day:?}, {burst:?}");
        }
    }

    #[test]
    fn names_are_the_labels_in_snake_case() {
        for status in KeyStatus::ALL {
            assert_eq!(status.name(), status.label().to_ascii_lowercase().replace(' ', "_"));
        }
    }
}
