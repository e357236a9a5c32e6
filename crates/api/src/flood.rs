//! A flood on a refused key must cost the counter store nothing: after 100 refusals of one key within a second, the node remembers the
//! refusal for up to one second. Nothing else is ever answered from memory.

use std::time::{Duration, Instant};

use domain::KeyDigest;
use quick_cache::sync::Cache;
use store::RefusedReason;

use crate::refusal::Refusal;

const REFUSALS: u32 = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// Refusals that time does not heal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    WrongSecret,
    Inactive,
    Paused,
}

impl Lasting {
    /// How it is counted.
    pub(crate) const fn reason(self) -> RefusedReason {
        match self {
            Self::WrongSecret => RefusedReason::WrongSecret,
            Self::Inactive => RefusedReason::Inactive,
            Self::Paused => RefusedReason::Paused,
        }
    }
}

impl From<Lasting> for Refusal {
    fn from(lasting: Lasting) -> Self {
        match lasting {
            Lasting::WrongSecret => Self::InvalidKey,
            Lasting::Inactive => Self::Inactive,
            Lasting::Paused => Self::Paused,
        }
    }
}

/// Refusals of one key in a row.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    lasting: Lasting,
    since: Instant,
    count: u32,
    remembered_until: Option<Instant>,
}

impl Run {
    /// The refusal, if it may be given again without asking.
    pub(crate) fn remembered(self) -> Option<Lasting> {
        self.remembered_until.is_some_and(|until| Instant::now() < until).then_some(self.lasting)
    }
}

/// By digest, not by id: a stranger who floods an id with wrong secrets must not have its owner refused.
pub(crate) struct Floods(Cache<KeyDigest, Run>);

impl Floods {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self(Cache::new(keys_max))
    }

    pub(crate) fn find(&self, digest: &KeyDigest) -> Option<Run> {
        self.0.get(digest)
    }

    /// Notes a refusal that the counter store has just given.
    pub(crate) fn note(&self, digest: KeyDigest, lasting: Lasting) {
        let now = Instant::now();
        let fresh = Run { lasting, since: now, count: 1, remembered_until: None };
        let run = match self.0.get(&digest).filter(|run| run.lasting == lasting) {
            // Still flooded when the memory lapsed: the one question that got through renews it.
            Some(run) if run.remembered_until.is_some_and(|until| now < until + WINDOW) => {
                Run { remembered_until: Some(now + WINDOW), ..run }
            }
            Some(run) if now < run.since + WINDOW => {
                let count = run.count + 1;
                Run { count, remembered_until: (count >= REFUSALS).then_some(now + WINDOW), ..run }
            }
            Some(_) | None => fresh,
        };
        self.0.insert(digest, run);
    }

    /// Forgets a key that was admitted.
    pub(crate) fn forget(&self, digest: &KeyDigest) {
        self.0.remove(digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hundredth_refusal_within_a_second_is_remembered() {
        let (floods, digest) = (Floods::new(10), KeyDigest::new([7; 32]));
        for _ in 1..REFUSALS {
            floods.note(digest, Lasting::Paused);
            assert_eq!(floods.find(&digest).and_then(Run::remembered), None);
        }
        floods.note(digest, Lasting::Paused);
        assert_eq!(floods.find(&digest).and_then(Run::remembered), Some(Lasting::Paused));
        assert!(floods.find(&KeyDigest::new([8; 32])).is_none());
    }
}
