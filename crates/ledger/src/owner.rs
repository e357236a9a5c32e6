//! The servers that own slots, and what a node knows of each. A failure of one does not concern the keys of another.

use std::sync::Arc;

use ipseity_domain::KeyId;
use tokio::time::Instant;

use crate::error::LedgerError;
use crate::layout::{self, Bucket, HashSlot};
use crate::ledger::Ledger;
use crate::ledger_time::LedgerTime;
use crate::redis::node::RedisNode;

/// The server that owns the slot of a key. Without a cluster, it owns all.
#[derive(Clone)]
pub struct Owner(pub(crate) Arc<RedisNode>);

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Owner {
    /// Whether the breaker is open: this node does not charge at this server.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.0.breaker.is_open()
    }

    /// Counts a charge that was answered.
    pub fn record_success(&self) {
        self.0.breaker.record_success();
    }

    /// Counts a failed charge. Returns `true` if it opens the breaker. All connections are then closed, because one
    /// without an answer may never answer again.
    #[must_use]
    pub fn record_failure(&self) -> bool {
        let is_opened = self.0.breaker.record_failure();
        if is_opened {
            self.0.disconnect();
        }
        is_opened
    }

    /// Closes the breaker.
    pub fn mark_available(&self) {
        self.0.breaker.close();
    }

    /// The server's clock, as this node knows it.
    #[must_use]
    pub fn now(&self) -> LedgerTime {
        self.0.clock.now()
    }

    /// The server's clock at an instant, as this node knows it, or an earlier time.
    #[must_use]
    pub fn at(&self, instant: std::time::Instant) -> LedgerTime {
        self.0.clock.at(instant)
    }

    /// Host and port, or the path of its socket.
    #[must_use]
    pub fn address(&self) -> String {
        self.0.address().to_string()
    }
}

impl Ledger {
    /// The owner of a key, by the last known slot map.
    #[must_use]
    pub fn owner_of(&self, key: KeyId) -> Owner {
        self.owner_of_slot(Bucket::of(key).slot())
    }

    pub(crate) fn owner_of_slot(&self, slot: HashSlot) -> Owner {
        Owner(self.router.last_known_owner(slot))
    }

    /// The owner of the demo quota.
    #[must_use]
    pub fn owner_of_demo(&self) -> Owner {
        self.owner_of_slot(HashSlot::of(&layout::demo_key()))
    }

    /// All owners, by the last known slot map.
    #[must_use]
    pub fn owners(&self) -> Vec<Owner> {
        self.router.last_known_owners().into_iter().map(Owner).collect()
    }

    /// Checks that a server answers. Also succeeds if it owns no slot any more.
    ///
    /// # Errors
    /// Fails if it does not answer in time.
    pub async fn probe(&self, owner: &Owner) -> Result<(), LedgerError> {
        let deadline = Instant::now() + self.timeout;
        if self.router.has_slot_map() {
            // Not awaited: it waits for all servers, and another one may be frozen.
            self.router.refresh_slot_map_in_background();
        } else {
            self.router.slot_map(deadline).await?;
        }
        if !self.owners().contains(owner) {
            return Ok(());
        }
        let connection = owner.0.connection(deadline).await?;
        self.ping_server(Arc::clone(&owner.0), connection, deadline).await
    }
}
