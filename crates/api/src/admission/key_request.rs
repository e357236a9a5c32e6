//! A request on its way through admission.

use std::time::Instant;

use ipseity_domain::ApiKey;
use ipseity_ledger::{Arrival, ChargeId, LedgerTime, Owner};

/// A request with a key.
#[derive(Clone)]
pub(super) struct KeyRequest {
    pub(super) key: ApiKey,
    pub(super) owner: Owner,
    pub(super) charge_id: ChargeId,
    pub(super) arrival: Arrival,
}

impl KeyRequest {
    /// A request that has just arrived at this node.
    pub(super) fn new(key: ApiKey, owner: Owner) -> Self {
        Self { key, owner, charge_id: ChargeId::next(), arrival: Arrival::Here(Instant::now()) }
    }

    /// When the request arrived, by the clock of the key's owner.
    pub(super) fn arrival_at_owner(&self) -> LedgerTime {
        match self.arrival {
            Arrival::Here(instant) => self.owner.at(instant),
            Arrival::AtOwner(arrival) | Arrival::AtRemoteNode { arrival, .. } => arrival,
        }
    }

    /// When the request arrived at this node; `None` if it arrived at another one.
    pub(super) const fn arrived_here_at(&self) -> Option<Instant> {
        if let Arrival::Here(instant) = self.arrival { Some(instant) } else { None }
    }
}
