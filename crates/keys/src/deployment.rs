//! Whether PostgreSQL and Redis belong together.
//!
//! Redis stores the id of the deployment and an id of its data set, the ledger id. PostgreSQL stores which
//! ledger id each node uses. A node whose Redis has another deployment id, or another ledger id than the other nodes, does
//! not trust its Redis.

use std::time::{Duration, Instant};

use ipseity_domain::is_mutant;
use ipseity_store::StoreIdentity;

use crate::error::KeyServiceError;
use crate::guard::{ClaimedLedger, DeploymentStatus};
use crate::service::KeyService;

/// How long a command waits for nodes to agree. They check every few seconds, for example after Redis has lost its data.
const SPLIT_WAIT: Duration = Duration::from_secs(3);

impl KeyService {
    /// The result of the last check.
    #[must_use]
    pub fn deployment_status(&self) -> DeploymentStatus {
        self.guard.status()
    }

    /// Checks that PostgreSQL and Redis belong together, and claims this Redis for the node. Also notices that another
    /// PostgreSQL server was promoted or a dump was restored: key records from before are then not trusted.
    ///
    /// # Errors
    /// If PostgreSQL or Redis is unavailable. The status stays.
    pub async fn check_deployment(&self) -> Result<DeploymentStatus, KeyServiceError> {
        let identity = self.read_identity().await?;
        let data_set_id = self.ledger.data_set_id().await?;
        let marker = match self.ledger.read_deployment_marker().await? {
            Some(marker) => marker,
            None => {
                self.ledger.create_deployment_marker(&self.new_marker(&identity, &data_set_id)).await?;
                // Another node may have been first.
                self.ledger.read_deployment_marker().await?.unwrap_or_default()
            }
        };
        let status = match ledger_id_of(&marker, &identity) {
            None => {
                self.store.deployment().release_ledger(self.guard.node_id).await?;
                DeploymentStatus::ForeignRedis
            }
            Some(ledger_id) if self.store.deployment().claim_ledger(self.guard.node_id, ledger_id).await? => {
                let claimed = ClaimedLedger { data_set_id, ledger_id: ledger_id.to_owned() };
                *self.guard.claimed() = Some(claimed);
                DeploymentStatus::Matching
            }
            Some(_) => DeploymentStatus::SplitRedis,
        };
        let status = if is_mutant("deployment-always-matches") { DeploymentStatus::Matching } else { status };
        self.guard.set_status(status);
        Ok(status)
    }

    /// Checks that PostgreSQL and Redis belong together, without a claim, for commands.
    ///
    /// # Errors
    /// If PostgreSQL or Redis is unavailable.
    pub async fn compare_deployment(&self) -> Result<DeploymentStatus, KeyServiceError> {
        let deadline = Instant::now() + SPLIT_WAIT;
        loop {
            let identity = self.read_identity().await?;
            let marker = match self.ledger.read_deployment_marker().await? {
                Some(marker) => marker,
                None => self.new_marker(&identity, &self.ledger.data_set_id().await?),
            };
            let status = match ledger_id_of(&marker, &identity) {
                None => DeploymentStatus::ForeignRedis,
                Some(ledger_id) if self.store.deployment().is_other_ledger_claimed(ledger_id).await? => {
                    DeploymentStatus::SplitRedis
                }
                Some(_) => DeploymentStatus::Matching,
            };
            if status != DeploymentStatus::SplitRedis || Instant::now() > deadline {
                self.guard.set_status(status);
                return Ok(status);
            }
            tokio::time::sleep(SPLIT_WAIT / 30).await;
        }
    }

    /// Gives up this node's claim before it exits, so that it does not delay a move to another Redis.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable. The claim then expires after a few seconds.
    pub async fn release_ledger(&self) -> Result<(), KeyServiceError> {
        Ok(self.store.deployment().release_ledger(self.guard.node_id).await?)
    }

    /// The marker for a Redis without one. Its ledger id is that of the data set, so that all nodes write the same. If the
    /// server was emptied and not restarted, it is the same as before.
    fn new_marker(&self, identity: &StoreIdentity, data_set_id: &str) -> String {
        let claimed = self.guard.claimed();
        let previous = claimed.as_ref().filter(|claimed| claimed.data_set_id == data_set_id);
        let ledger_id = previous.map_or(data_set_id, |claimed| claimed.ledger_id.as_str());
        format!("{}:{ledger_id}", identity.deployment_id)
    }

    async fn read_identity(&self) -> Result<StoreIdentity, KeyServiceError> {
        let identity = self.store.deployment().identity().await?;
        self.guard.fingerprint().set(identity.fingerprint.as_bytes().try_into().ok());
        Ok(identity)
    }
}

/// The ledger id in a marker `<deployment id>:<ledger id>`. `None` if it belongs to another deployment.
fn ledger_id_of<'a>(marker: &'a str, identity: &StoreIdentity) -> Option<&'a str> {
    marker.strip_prefix(&identity.deployment_id)?.strip_prefix(':')
}
