//! The key record: everything that a verdict needs to know about a key.

use crate::key::{KeyDigest, KeyId};
use crate::scope::Scope;
use crate::usage::DailyUsage;

/// Everything that a verdict needs to know about a key, as stored in PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// The key.
    pub id: KeyId,
    /// Digest of the current secret.
    pub digest: KeyDigest,
    /// Digest of the previous secret after a rotation, until it expires or is revoked.
    pub previous: Option<PreviousDigest>,
    /// The fields that the key may read.
    pub scope: Scope,
    /// Requests per day, by the account's plan.
    pub daily_limit: u64,
    /// Whether the key is deactivated or paused.
    pub flags: KeyFlags,
    /// Incremented by every change. The record with the higher generation is newer.
    pub generation: u64,
    /// Incremented by every resume. A pause belongs to one burst epoch.
    pub burst_epoch: u64,
    /// The newest day with stored usage, and its count.
    pub usage: Option<DailyUsage>,
}

impl KeyRecord {
    /// Whether the digest is that of the current secret, or of the previous one before it expires.
    #[must_use]
    pub fn accepts(&self, digest: &KeyDigest, now_s: u64) -> bool {
        let previous = self.previous.filter(|previous| now_s < previous.expires_at_s);
        self.digest == *digest || previous.is_some_and(|previous| previous.digest == *digest)
    }

    /// Merges usage from another source. The newer day wins and, on the same day, the higher count.
    pub fn merge_usage(&mut self, other: Option<DailyUsage>) {
        self.usage = [self.usage, other].into_iter().flatten().max_by_key(|used| (used.day, used.count));
    }
}

/// A change of a key that is committed in PostgreSQL and must be applied to Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// The key has this record.
    Updated(KeyRecord),
    /// The key was deleted.
    Deleted(KeyId),
}

/// The digest of a previous secret, and when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousDigest {
    /// Digest of the previous secret.
    pub digest: KeyDigest,
    /// Expiry, as Unix time in seconds.
    pub expires_at_s: u64,
}

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Requests are admitted, within the limits.
    Active,
    /// The key exceeded the burst limit. Requests are rejected until its owner resumes it.
    Paused,
    /// The key was deactivated by its owner or an operator.
    Inactive,
}

impl KeyState {
    /// The state's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Inactive => "inactive",
        }
    }
}

/// The flags that determine the state. They are independent: a deactivated key can also be paused, and stays so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyFlags {
    /// Deactivated.
    pub deactivated: bool,
    /// Paused.
    pub paused: bool,
}

impl KeyFlags {
    /// The state that the flags determine.
    #[must_use]
    pub const fn state(self) -> KeyState {
        match (self.deactivated, self.paused) {
            (true, _) => KeyState::Inactive,
            (false, true) => KeyState::Paused,
            (false, false) => KeyState::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_flag_survives_reactivation() {
        let mut flags = KeyFlags { deactivated: true, paused: true };
        assert_eq!(flags.state(), KeyState::Inactive);
        flags.deactivated = false;
        assert_eq!(flags.state(), KeyState::Paused);
        flags.paused = false;
        assert_eq!(flags.state(), KeyState::Active);
    }
}
