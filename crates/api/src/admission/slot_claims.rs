//! Claims of slots by remote nodes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A site claims or renews a slot at most once in this time.
const SLOT_CLAIM_INTERVAL: Duration = Duration::from_secs(1);

/// Limits how often sites claim slots.
#[derive(Default)]
pub(super) struct SlotClaims {
    pub(super) turn: tokio::sync::Mutex<()>,
    /// When each site has last claimed one.
    last: Mutex<HashMap<String, Instant>>,
}

impl SlotClaims {
    pub(super) fn may_claim(&self, site: &str) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, at| at.elapsed() < SLOT_CLAIM_INTERVAL);
        let is_first = !last.contains_key(site);
        if is_first {
            last.insert(site.to_owned(), Instant::now());
        }
        is_first
    }
}
