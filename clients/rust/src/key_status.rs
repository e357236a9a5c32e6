//! The status of a key.

use serde::Deserialize;

/// Status of a key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct KeyStatusResponse {
    /// Scope: `ip`, `geo` or `full`.
    pub scope: String,
    /// State: `active`, `paused`, `inactive` or `expired`.
    pub state: String,
    /// What the next request can expect, in the words of the portal: `active`, `near_daily_limit`, `near_burst_limit`,
    /// `daily_limit_reached`, `expired`, `paused` or `deactivated`. `None` if a request has an `Origin` header, and from a
    /// service of an earlier version.
    pub key_status: Option<String>,
    /// Limits. `None` if a request has an `Origin` header.
    pub limits: Option<KeyLimits>,
    /// Usage. `None` if a request has an `Origin` header.
    pub usage: Option<KeyUsage>,
    /// When the key expires, as RFC 3339, if it does.
    pub expires_at: Option<String>,
    /// Who may use the key. `None` if a request has an `Origin` header.
    pub restrictions: Option<KeyRestrictions>,
}

/// Who may use a key. Empty lists allow everyone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct KeyRestrictions {
    /// Allowed origins of web pages.
    pub origins: Vec<String>,
    /// Allowed networks.
    pub networks: Vec<String>,
    /// Requests per minute of one caller at each node.
    pub caller_limit: Option<u32>,
    /// Whether the key accepts only tickets.
    #[serde(default)]
    pub tickets_only: bool,
}

/// Limits of a key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct KeyLimits {
    /// Requests per day.
    pub day: u64,
    /// Requests in any 60 seconds.
    pub burst: u64,
}

/// Requests that count toward the limits. `None` while the service does not know them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct KeyUsage {
    /// Requests today.
    pub day: Option<u64>,
    /// Requests in the last 60 seconds.
    pub burst: Option<u64>,
}
