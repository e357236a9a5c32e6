//! A key's standing: all that a verdict needs to know of it.

use crate::key::{KeyDigest, KeyId};
use crate::scope::Scope;
use crate::usage::DailyUsage;

/// All that a verdict needs to know of a key, as the durable store tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Which key.
    pub id: KeyId,
    /// Digest of the key that is valid now.
    pub digest: KeyDigest,
    /// The digest before a roll, while it still holds.
    pub previous: Option<PreviousDigest>,
    /// What it may see.
    pub scope: Scope,
    /// Requests a day, by the account's plan.
    pub daily_limit: u64,
    /// Deactivated, paused.
    pub flags: KeyFlags,
    /// Raised by every change: of two standings the one with the higher generation is the newer.
    pub generation: u64,
    /// Raised by every resume: a pause belongs to one window.
    pub burst_epoch: u64,
    /// The newest day that was rolled up, and its count.
    pub usage: Option<DailyUsage>,
}

impl KeyRecord {
    /// Whether a key with this digest is this one, or the one before its roll while that still holds.
    #[must_use]
    pub fn accepts(&self, digest: &KeyDigest, now_s: u64) -> bool {
        let previous = self.previous.filter(|previous| now_s < previous.expires_at_s);
        self.digest == *digest || previous.is_some_and(|previous| previous.digest == *digest)
    }

    /// Takes a count into account that is known from elsewhere: the newer day stands, and of one day the greater count.
    pub fn merge_usage(&mut self, other: Option<DailyUsage>) {
        self.usage = [self.usage, other].into_iter().flatten().max_by_key(|used| (used.day, used.count));
    }
}

/// A change of a key that is committed in the durable store and must now reach the counter store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// The key has this standing.
    Updated(KeyRecord),
    /// The key is gone.
    Deleted(KeyId),
}

/// The digest of a rolled key, and until when it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousDigest {
    /// Digest of the old key.
    pub digest: KeyDigest,
    /// Unix time in seconds.
    pub expires_at_s: u64,
}

/// What a key may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Answers.
    Active,
    /// Exceeded the burst limit; refused until its owner resumes it.
    Paused,
    /// Deactivated by its owner or an operator.
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

/// The two facts behind a state. They are apart, so that reactivating a key that was paused before leaves it paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyFlags {
    /// Deactivated.
    pub deactivated: bool,
    /// Paused.
    pub paused: bool,
}

impl KeyFlags {
    /// The state that the two facts make.
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
