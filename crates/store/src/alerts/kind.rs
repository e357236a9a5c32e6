//! The kinds of alerts.

use ipseity_domain::KeyStatus;

/// The kind of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertKind {
    /// The key was paused. A channel gets at most one of a key per minute.
    Paused,
    /// The key was resumed.
    Resumed,
    /// The key has used four fifths of its burst limit. At most one per key per hour.
    NearBurstLimit,
    /// The key has used four fifths of its daily limit. One per key per day.
    NearDailyLimit,
    /// The key has used its daily limit. One per key per day.
    DailyLimitReached,
    /// The key was created.
    Created,
    /// The key has a new secret.
    Rotated,
    /// The key was deleted.
    Deleted,
    /// The key expires soon. One per expiry.
    Expiring,
    /// A test of a channel.
    Test,
}

impl AlertKind {
    /// The kinds that a channel can receive, in the order of forms. All but tests.
    pub const CHOICES: [Self; 9] = [
        Self::Paused,
        Self::Resumed,
        Self::NearBurstLimit,
        Self::NearDailyLimit,
        Self::DailyLimitReached,
        Self::Created,
        Self::Rotated,
        Self::Deleted,
        Self::Expiring,
    ];

    /// The kind's name, which is also the value of forms.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paused => KeyStatus::Paused.name(),
            Self::Resumed => "resumed",
            Self::NearBurstLimit => KeyStatus::NearBurstLimit.name(),
            Self::NearDailyLimit => KeyStatus::NearDailyLimit.name(),
            Self::DailyLimitReached => KeyStatus::DailyLimitReached.name(),
            Self::Created => "created",
            Self::Rotated => "rotated",
            Self::Deleted => "deleted",
            Self::Expiring => "expiring",
            Self::Test => "test",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::CHOICES.into_iter().chain([Self::Test]).find(|kind| kind.name() == name)
    }

    /// The kinds of rows of `notices` that this version knows.
    pub(crate) fn notice_kinds() -> Vec<String> {
        Self::CHOICES.into_iter().chain([Self::Test]).map(|kind| format!("alert_{}", kind.name())).collect()
    }

    /// The kind of a row of `notices`, such as `alert_paused`.
    pub(crate) fn find_notice(kind: &str) -> Option<Self> {
        Self::find(kind.strip_prefix("alert_")?)
    }
}
