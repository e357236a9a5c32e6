//! Whether PostgreSQL and Redis belong together.
//!
//! Redis stores the id of the deployment. PostgreSQL stores which Redis data set its nodes use. A node whose Redis has
//! another deployment id, or another data set than the other nodes, does not trust its Redis.

use std::time::{Duration, Instant};

use ipseity_domain::is_mutant;
use ipseity_store::StoreIdentity;

use crate::error::KeyServiceError;
use crate::guard::DeploymentStatus;
use crate::service::KeyService;

/// How long a command waits for nodes to agree, for example after a restart of Redis.
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
        let store_identity = self.read_identity().await?;
        let mut ledger_identity = self.ledger.identity().await?;
        if ledger_identity.deployment_id.is_none() {
            self.ledger.assign_deployment(&store_identity.deployment_id, &ledger_identity.data_set_id).await?;
            // Another node may have been first.
            ledger_identity = self.ledger.identity().await?;
        }
        let deployment = self.store.deployment();
        let status = if ledger_identity.deployment_id.as_ref() != Some(&store_identity.deployment_id) {
            deployment.release_data_set(self.guard.node_id).await?;
            DeploymentStatus::ForeignRedis
        } else if deployment.claim_data_set(self.guard.node_id, &ledger_identity.data_set_id).await? {
            self.guard.trusted_stores().set_data_set(&ledger_identity.data_set_id);
            if store_identity.data_set_id != Some(ledger_identity.data_set_id) {
                // The claim has changed the fingerprint.
                self.read_identity().await?;
            }
            DeploymentStatus::Matching
        } else {
            DeploymentStatus::SplitRedis
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
            let store_identity = self.read_identity().await?;
            let ledger_identity = self.ledger.identity().await?;
            let is_foreign = ledger_identity.deployment_id.is_some_and(|id| id != store_identity.deployment_id);
            let status = match store_identity.data_set_id {
                _ if is_foreign => DeploymentStatus::ForeignRedis,
                Some(current) if current != ledger_identity.data_set_id => {
                    let is_claimed = self.store.deployment().is_data_set_claimed(&current).await?;
                    if is_claimed { DeploymentStatus::SplitRedis } else { DeploymentStatus::UnclaimedRedis }
                }
                Some(current) => {
                    self.guard.trusted_stores().set_data_set(&current);
                    DeploymentStatus::Matching
                }
                None => DeploymentStatus::Matching,
            };
            if status != DeploymentStatus::SplitRedis || Instant::now() > deadline {
                self.guard.set_status(status);
                return Ok(status);
            }
            tokio::time::sleep(SPLIT_WAIT / 30).await;
        }
    }

    /// Uses the Redis that this node finds, while PostgreSQL cannot be asked which one the nodes use.
    pub fn allow_any_data_set(&self) {
        self.guard.trusted_stores().allow_any_data_set();
    }

    /// Gives up this node's claim before it exits, so that it does not delay a move to another Redis.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable. The claim then expires after a few seconds.
    pub async fn release_data_set(&self) -> Result<(), KeyServiceError> {
        Ok(self.store.deployment().release_data_set(self.guard.node_id).await?)
    }

    async fn read_identity(&self) -> Result<StoreIdentity, KeyServiceError> {
        let identity = self.store.deployment().identity().await?;
        self.guard.trusted_stores().set_database(identity.fingerprint.as_bytes().try_into().ok());
        Ok(identity)
    }
}
