//! A key's standing: all that a verdict needs to know of it.

use crate::key::{KeyDigest, KeyId};
use crate::limit::Day;
use crate::scope::Scope;
use crate::state::Marks;

/// All that a verdict needs to know of a key, as the durable store tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which key.
    pub id: KeyId,
    /// Digest of the key that is valid now.
    pub digest: KeyDigest,
    /// The digest before a roll, while it still holds.
    pub retired: Option<Retired>,
    /// What it may see.
    pub scope: Scope,
    /// Requests a day, by the account's plan.
    pub daily_limit: u64,
    /// Deactivated, paused.
    pub marks: Marks,
    /// Raised by every change: of two standings the one with the higher generation is the newer.
    pub generation: u64,
    /// Raised by every resume: a pause belongs to one window.
    pub window: u64,
    /// The newest day that was rolled up, and its count.
    pub used: Option<Used>,
}

impl Standing {
    /// Whether a key with this digest is this one, or the one before its roll while that still holds.
    #[must_use]
    pub fn opens_to(&self, digest: &KeyDigest, now_s: u64) -> bool {
        let retired = self.retired.filter(|retired| now_s < retired.until_s);
        self.digest == *digest || retired.is_some_and(|retired| retired.digest == *digest)
    }

    /// Takes a count into account that is known from elsewhere: the newer day stands, and of one day the greater count.
    pub fn count_at_least(&mut self, known: Option<Used>) {
        self.used = [self.used, known].into_iter().flatten().max_by_key(|used| (used.day, used.count));
    }
}

/// A change of a key that is committed in the durable store and must now reach the counter store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this standing.
    Stands(Standing),
    /// The key is gone.
    Gone(KeyId),
}

/// The digest of a rolled key, and until when it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    /// Digest of the old key.
    pub digest: KeyDigest,
    /// Unix time in seconds.
    pub until_s: u64,
}

/// Requests charged to a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The day.
    pub day: Day,
    /// Requests charged to it.
    pub count: u64,
}
