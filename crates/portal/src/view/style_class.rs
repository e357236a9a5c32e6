//! The classes of the stylesheet for a key's status and for how much of a limit is used.

use ipseity_domain::{KeyStatus, LimitLevel};

/// A value with a class in the stylesheet.
pub(crate) trait StyleClass {
    fn class(&self) -> &'static str;
}

impl StyleClass for LimitLevel {
    fn class(&self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Near => "near-limit",
            Self::Reached => "limit-reached",
        }
    }
}

impl StyleClass for KeyStatus {
    fn class(&self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::NearDailyLimit | Self::NearBurstLimit => LimitLevel::Near.class(),
            Self::DailyLimitReached => LimitLevel::Reached.class(),
            Self::Paused => "paused",
            Self::Deactivated => "inactive",
            Self::Expired => "expired",
        }
    }
}
