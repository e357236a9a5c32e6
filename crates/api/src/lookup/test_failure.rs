//! The errors that a request with a test key can ask for.

/// An error that the parameter `fail` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestFailure {
    Burst,
    Paused,
    Day,
    Inactive,
    Expired,
    Origin,
    Caller,
    Ticket,
    Internal,
}

impl TestFailure {
    pub(crate) const ALL: [Self; 9] = [
        Self::Burst,
        Self::Paused,
        Self::Day,
        Self::Inactive,
        Self::Expired,
        Self::Origin,
        Self::Caller,
        Self::Ticket,
        Self::Internal,
    ];

    /// The value of the parameter.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Paused => "paused",
            Self::Day => "day",
            Self::Inactive => "inactive",
            Self::Expired => "expired",
            Self::Origin => "origin",
            Self::Caller => "caller",
            Self::Ticket => "ticket",
            Self::Internal => "500",
        }
    }

    /// The error with a name, in upper or lower case.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.name().eq_ignore_ascii_case(name))
    }
}
