//! The status of a key, for the client that has its secret. Reads only: it charges nothing, fills no record and counts no
//! rejection.

use std::sync::Arc;
use std::time::Instant;

use ipseity_domain::{ApiKey, VersionedRestrictions};
use ipseity_home::HomeClient;
use ipseity_home::message::{Reply, Request};
use ipseity_ledger::{FoundStatus, KeySnapshot, LedgerTime};

use crate::admission::Admission;
use crate::admission::backend::{Backend, Stores};
use crate::error::Refusal;

impl Admission {
    /// The time by which a key expires.
    pub(crate) fn now_of(&self, key: &ApiKey) -> LedgerTime {
        self.backend.owner_of(key.id).now()
    }

    /// The time by which tokens for all nodes are sealed. They must open before it is known which key they are of, so it is
    /// not the time of that key's owner.
    pub(crate) fn sealing_time_s(&self) -> u64 {
        self.backend.owner_of_demo().now().as_secs()
    }

    /// The restrictions of a key, of this version or a later one.
    pub(crate) async fn restrictions_of(
        &self,
        key: &ApiKey,
        version: u64,
    ) -> Result<Option<Arc<VersionedRestrictions>>, Refusal> {
        if version > 0 {
            self.read_restrictions(key, version).await
        } else {
            Ok(self.degraded.restrictions_of(key).map(|known| known.versioned))
        }
    }

    /// The status of a key. A wrong secret gets the same refusal as a key that does not exist.
    pub(crate) async fn key_status(&self, key: &ApiKey) -> Result<KeySnapshot, Refusal> {
        if self.key_lookups.is_missing(key.id) {
            return Err(Refusal::InvalidKey);
        }
        match &self.backend {
            Backend::Stores(stores) => self.key_status_at_stores(stores, key).await,
            Backend::Home(home) => {
                // Anyone can make up keys. They must not delay the requests of known keys to home.
                let _permit = if self.degraded.knows(key.id) {
                    None
                } else {
                    self.key_lookups.permits(false).acquire().await.ok()
                };
                key_status_at_home(home, key).await
            }
        }
    }

    async fn key_status_at_stores(&self, stores: &Stores, key: &ApiKey) -> Result<KeySnapshot, Refusal> {
        let owner = stores.ledger.owner_of(key.id);
        let found = if self.may_charge(&owner) { stores.ledger.key_status(key).await.ok() } else { None };
        match found {
            Some(FoundStatus::Status(status)) => return Ok(status),
            Some(FoundStatus::WrongSecret) => return Err(Refusal::InvalidKey),
            Some(FoundStatus::NoRecord | FoundStatus::Untrusted) | None => {}
        }
        let Some(mut record) =
            self.find_key_record(key.id, self.degraded.knows(key.id)).await.ok_or(Refusal::Internal)?
        else {
            self.key_lookups.missing_keys.insert(key.id, Instant::now());
            return Err(Refusal::InvalidKey);
        };
        let now = owner.now();
        if !record.accepts(&key.digest, now.as_secs()) {
            return Err(Refusal::InvalidKey);
        }
        // PostgreSQL may not have this node's pause yet.
        record.flags.paused |= self.degraded.is_paused_here(key.id);
        Ok(KeySnapshot::of_record(&record, now, found == Some(FoundStatus::NoRecord)))
    }
}

async fn key_status_at_home(home: &HomeClient, key: &ApiKey) -> Result<KeySnapshot, Refusal> {
    match home.call(Request::KeyStatus(key.into()), home.owner().now()).await {
        Ok(Reply::KeyStatus(status)) => status.parse().ok_or(Refusal::Internal),
        Ok(Reply::NoSuchKey) => Err(Refusal::InvalidKey),
        Ok(_) | Err(_) => Err(Refusal::Internal),
    }
}
