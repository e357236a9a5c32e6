//! The identity of the deployment, and which Redis data set its nodes use.

use std::time::Duration;

use sqlx::FromRow;
use uuid::Uuid;

use crate::access::StoreDeployment;
use crate::error::StoreError;

/// How long a claim counts after its last refresh. Nodes refresh theirs every few seconds.
const CLAIM_AGE_MAX: Duration = Duration::from_secs(10);

/// What distinguishes this database from others, and from an earlier state of it.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct StoreIdentity {
    /// The random id of the deployment. A dump contains it.
    pub deployment_id: String,
    /// Eight characters that change if commits may have been lost: after the promotion of a replica, a restored dump or
    /// a recovery to a point in time. They also change with the data set.
    pub fingerprint: String,
    /// The Redis data set that nodes use. `None` before the first.
    pub data_set_id: Option<String>,
}

impl StoreDeployment<'_> {
    /// Reads the identity.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable or a replica, or does not permit the role to call the functions.
    pub async fn identity(self) -> Result<StoreIdentity, StoreError> {
        // A promotion starts a new timeline. A restored dump has other oids. The name of the current WAL file starts
        // with the timeline; the control data would have that of the last checkpoint.
        let identity = sqlx::query_as(
            "select d.id::text as deployment_id, d.data_set_id,
                    left(encode(sha256(convert_to(concat_ws(' ',
                        (select system_identifier from pg_control_system()),
                        left(pg_walfile_name(pg_current_wal_lsn()), 8),
                        (select oid from pg_database where datname = current_database()),
                        'keys'::regclass::oid,
                        d.id, d.epoch), 'UTF8')), 'hex'), 8) as fingerprint
             from deployment d",
        )
        .fetch_one(&self.store.pool);
        self.store.with_timeout(identity).await
    }

    /// Claims a Redis data set for a node, or refreshes its claim. Returns `false` if the nodes use another one.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim_data_set(self, node_id: Uuid, data_set_id: &str) -> Result<bool, StoreError> {
        let claimed = sqlx::query_scalar("select claim_data_set($1, $2, make_interval(secs => $3))")
            .bind(node_id)
            .bind(data_set_id)
            .bind(CLAIM_AGE_MAX.as_secs_f64())
            .fetch_one(&self.store.pool);
        self.store.with_timeout(claimed).await
    }

    /// Whether a node uses this Redis data set.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn is_data_set_claimed(self, data_set_id: &str) -> Result<bool, StoreError> {
        let claimed = sqlx::query_scalar(
            "select exists (select from ledger_claims
                            where data_set_id = $1
                              and seen_at between clock_timestamp() - make_interval(secs => $2) and clock_timestamp())",
        )
        .bind(data_set_id)
        .bind(CLAIM_AGE_MAX.as_secs_f64())
        .fetch_one(&self.store.pool);
        self.store.with_timeout(claimed).await
    }

    /// Number of nodes: home nodes that run, and sites with a remote node, which may not run.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn node_count(self) -> Result<u32, StoreError> {
        let count = sqlx::query_scalar(
            "select (select count(*) from ledger_claims
                     where is_holder and seen_at between clock_timestamp() - make_interval(secs => $1) and clock_timestamp())
                  + (select count(*) from sites)",
        )
        .bind(CLAIM_AGE_MAX.as_secs_f64())
        .fetch_one(&self.store.pool);
        let count: i64 = self.store.with_timeout(count).await?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Deletes a node's claim.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn release_data_set(self, node_id: Uuid) -> Result<(), StoreError> {
        let released = sqlx::query("select release_data_set($1)").bind(node_id).execute(&self.store.pool);
        self.store.with_timeout(released).await?;
        Ok(())
    }
}
