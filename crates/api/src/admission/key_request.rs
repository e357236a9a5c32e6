//! A request on its way through admission.

use std::time::Instant;

use ipseity_domain::ApiKey;
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, LedgerTime, Owner};

use crate::admission::restricted::Restricted;

/// A request with a key.
#[derive(Clone)]
pub(super) struct KeyRequest {
    pub(super) key: ApiKey,
    pub(super) owner: Owner,
    pub(super) charge_id: ChargeId,
    pub(super) arrival: Arrival,
    /// The restrictions that were applied to it, here or at a remote node.
    pub(super) applied: AppliedRestrictions,
    /// Those that were applied here.
    pub(super) restricted: Restricted,
}

impl KeyRequest {
    /// A request that has just arrived at this node.
    pub(super) fn new(key: ApiKey, owner: Owner) -> Self {
        let (charge_id, arrival) = (ChargeId::next(), Arrival::Here(Instant::now()));
        let (applied, restricted) = (AppliedRestrictions::default(), Restricted::default());
        Self { key, owner, charge_id, arrival, applied, restricted }
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
