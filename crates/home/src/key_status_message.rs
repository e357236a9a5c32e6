//! The message with the status of a key.

use ipseity_domain::{KeyFlags, Scope};
use ipseity_ledger::{KeyCounts, KeySnapshot};
use serde::{Deserialize, Serialize};

use crate::message::{is_specified_burst_limit, specified_burst_limit};

/// The status of a key.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeyStatusMessage {
    scope: String,
    daily_limit: u64,
    #[serde(default = "specified_burst_limit", skip_serializing_if = "is_specified_burst_limit")]
    burst_limit: usize,
    deactivated: bool,
    paused: bool,
    /// Requests of the day and of the last 60 seconds, if Redis answers.
    counts: Option<(u64, u64)>,
    restriction_version: u64,
}

impl From<&KeySnapshot> for KeyStatusMessage {
    fn from(status: &KeySnapshot) -> Self {
        Self {
            scope: status.scope.name().to_owned(),
            daily_limit: status.daily_limit,
            burst_limit: status.burst_limit,
            deactivated: status.flags.deactivated,
            paused: status.flags.paused,
            counts: status.counts.map(|counts| (counts.day, counts.burst)),
            restriction_version: status.restriction_version,
        }
    }
}

impl KeyStatusMessage {
    /// The status, if its scope is known.
    #[must_use]
    pub fn parse(self) -> Option<KeySnapshot> {
        Some(KeySnapshot {
            scope: Scope::parse(&self.scope)?,
            flags: KeyFlags { deactivated: self.deactivated, paused: self.paused },
            daily_limit: self.daily_limit,
            burst_limit: self.burst_limit,
            counts: self.counts.map(|(day, burst)| KeyCounts { day, burst }),
            restriction_version: self.restriction_version,
        })
    }
}
