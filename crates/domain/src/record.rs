//! The key record: everything that a verdict needs to know about a key.

use std::sync::Arc;

use crate::key::{KeyDigest, KeyId};
use crate::mutant::is_mutant;
use crate::restrictions::VersionedRestrictions;
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
    /// Requests per day: by the account's plan or an override, or fewer by the key's restrictions.
    pub daily_limit: u64,
    /// Requests in any 60 seconds, by the account's plan or an override.
    pub burst_limit: usize,
    /// Who may use the key. `None` if it was never restricted.
    pub restrictions: Option<Arc<VersionedRestrictions>>,
    /// Whether the key is deactivated or paused.
    pub flags: KeyFlags,
    /// Incremented by every change. The record with the higher generation is newer.
    pub generation: u64,
    /// Incremented by every resume. A pause belongs to one burst epoch.
    pub burst_epoch: u64,
    /// The newest day with stored usage, and its count. It is at most one day after PostgreSQL's current day.
    pub usage: Option<DailyUsage>,
    /// The day with stored usage before that, and its count.
    pub previous_usage: Option<DailyUsage>,
}

impl KeyRecord {
    /// Whether the digest is that of the current secret, or of the previous one before it expires.
    #[must_use]
    pub fn accepts(&self, digest: &KeyDigest, now_s: u64) -> bool {
        let is_valid =
            |previous: &PreviousDigest| now_s < previous.expires_at_s || is_mutant("memory-keeps-previous-secret");
        let previous = self.previous.filter(is_valid);
        self.digest == *digest || previous.is_some_and(|previous| previous.digest == *digest)
    }

    /// Merges usage from another source. The two newest days win and, on the same day, the higher count.
    pub fn merge_usage(&mut self, other: Option<DailyUsage>) {
        let Some(other) = other else { return };
        for known in [&mut self.usage, &mut self.previous_usage].into_iter().flatten() {
            if known.day == other.day {
                known.count = known.count.max(other.count);
                return;
            }
        }
        let is_newer = |known: Option<DailyUsage>| known.is_none_or(|known| other.day > known.day);
        if is_newer(self.usage) {
            (self.usage, self.previous_usage) = (Some(other), self.usage);
        } else if is_newer(self.previous_usage) {
            self.previous_usage = Some(other);
        }
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
    use crate::usage::UtcDay;

    fn record() -> KeyRecord {
        KeyRecord {
            id: KeyId::parse("0123456789").expect("id parses"),
            digest: KeyDigest::new([0; 32]),
            previous: None,
            scope: Scope::Ip,
            daily_limit: 1,
            burst_limit: 300,
            restrictions: None,
            flags: KeyFlags::default(),
            generation: 1,
            burst_epoch: 1,
            usage: None,
            previous_usage: None,
        }
    }

    #[test]
    fn previous_secret_is_accepted_until_it_expires() {
        let (current, previous, other) = (record().digest, KeyDigest::new([1; 32]), KeyDigest::new([2; 32]));
        let record = KeyRecord { previous: Some(PreviousDigest { digest: previous, expires_at_s: 100 }), ..record() };
        for (now_s, is_accepted) in [(99, true), (100, false), (101, false)] {
            assert!(record.accepts(&current, now_s));
            assert_eq!(record.accepts(&previous, now_s), is_accepted, "at {now_s}");
            assert!(!record.accepts(&other, now_s));
        }
    }

    #[test]
    fn merged_usage_keeps_the_higher_count_of_the_two_newest_days() {
        let used = |day, count| Some(DailyUsage { day: UtcDay(day), count });
        let mut record = record();
        for (merged, usage, previous) in [
            (None, None, None),
            (used(7, 5), used(7, 5), None),
            (used(7, 4), used(7, 5), None),
            (used(5, 9), used(7, 5), used(5, 9)),
            (used(6, 2), used(7, 5), used(6, 2)),
            (used(6, 3), used(7, 5), used(6, 3)),
            (used(8, 1), used(8, 1), used(7, 5)),
        ] {
            record.merge_usage(merged);
            assert_eq!((record.usage, record.previous_usage), (usage, previous), "after {merged:?}");
        }
    }

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
