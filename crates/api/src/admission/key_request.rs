//! A request on its way through admission.

use std::time::Instant;

use ipseity_domain::ApiKey;
use ipseity_ledger::{ChargeId, LedgerTime, Owner};

/// A request with a key.
pub(super) struct KeyRequest {
    pub(super) key: ApiKey,
    pub(super) owner: Owner,
    pub(super) charge_id: ChargeId,
    pub(super) arrived_at: Instant,
}

impl KeyRequest {
    /// When the request arrived, by the clock of the key's owner.
    pub(super) fn arrival(&self) -> LedgerTime {
        self.owner.at(self.arrived_at)
    }
}
