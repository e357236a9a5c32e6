//! The badge of a key, with the same words on every page, and how much of a daily limit is used.

use ipseity_domain::KeyState;

/// How much of a daily limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaLevel {
    Normal,
    /// Four fifths are used, as in the alert.
    Near,
    Reached,
}

impl QuotaLevel {
    pub(crate) const fn of(used: u64, limit: u64) -> Self {
        if used >= limit {
            Self::Reached
        } else if used >= limit - limit / 5 {
            Self::Near
        } else {
            Self::Normal
        }
    }

    /// The class in the stylesheet.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Near => "near-limit",
            Self::Reached => "limit-reached",
        }
    }
}

/// Whether the next request of a key is admitted, in the words of all pages and emails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyBadge {
    Active,
    NearDailyLimit,
    DailyLimitReached,
    Paused,
    Deactivated,
    Expired,
}

impl KeyBadge {
    /// The badge of a key that is neither paused, deactivated nor expired.
    pub(crate) const fn of_usage(used: u64, limit: u64) -> Self {
        match QuotaLevel::of(used, limit) {
            QuotaLevel::Normal => Self::Active,
            QuotaLevel::Near => Self::NearDailyLimit,
            QuotaLevel::Reached => Self::DailyLimitReached,
        }
    }

    /// The badge of a key in a list without usage.
    pub(crate) const fn of_state(state: KeyState, is_expired: bool) -> Self {
        match state {
            KeyState::Inactive => Self::Deactivated,
            KeyState::Paused => Self::Paused,
            KeyState::Active if is_expired => Self::Expired,
            KeyState::Active => Self::Active,
        }
    }

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::NearDailyLimit => "Near daily limit",
            Self::DailyLimitReached => "Daily limit reached",
            Self::Paused => "Paused",
            Self::Deactivated => "Deactivated",
            Self::Expired => "Expired",
        }
    }

    /// The class in the stylesheet.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::NearDailyLimit => QuotaLevel::Near.class(),
            Self::DailyLimitReached => QuotaLevel::Reached.class(),
            Self::Paused => "paused",
            Self::Deactivated => "inactive",
            Self::Expired => "expired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn badge_follows_the_use_of_the_daily_limit() {
        for (used, limit, label) in [
            (0, 10_000, "Active"),
            (7_999, 10_000, "Active"),
            (8_000, 10_000, "Near daily limit"),
            (9_999, 10_000, "Near daily limit"),
            (10_000, 10_000, "Daily limit reached"),
            (10_400, 10_000, "Daily limit reached"),
            (0, 1, "Active"),
            (1, 1, "Daily limit reached"),
        ] {
            assert_eq!(KeyBadge::of_usage(used, limit).label(), label, "{used} of {limit}");
        }
    }
}
