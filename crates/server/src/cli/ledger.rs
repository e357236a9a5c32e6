//! `ipseity ledger`

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use ipseity_keys::DeploymentStatus;
use serde_json::json;

use crate::cli::admin_context::AdminContext;
use crate::cli::output;

#[derive(Subcommand)]
pub(super) enum LedgerCommand {
    /// Delete the counts and key records in Redis.
    ///
    /// Nodes read key records and today's counts from PostgreSQL again. What was counted since the last usage flush and the requests of the last 60
    /// seconds are forgotten. Other data in the same Redis stays. Use it after you restored PostgreSQL, to discard newer counts.
    Reset {
        /// Confirm the deletion. Without this flag, nothing is deleted.
        #[arg(long)]
        yes: bool,
    },
}

impl LedgerCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        let Self::Reset { yes } = self;
        ensure!(yes, "the counts and key records in Redis would be deleted. To confirm, add --yes.");
        // Without PostgreSQL, this could be the Redis of another deployment. It could also have pauses that PostgreSQL lacks.
        let status = admin.key_service.compare_deployment().await.context("nothing deleted")?;
        ensure!(status != DeploymentStatus::ForeignRedis, "nothing deleted, because {status}");
        let deleted = admin.ledger.reset().await.context("Redis may still have some keys. Run the command again.")?;
        output::print_result(json, &json!({ "deleted": deleted }), &format!("Deleted {deleted} keys in Redis."))
    }
}
