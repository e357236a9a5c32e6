//! `ipseity migrate`

use anyhow::{Context, Result, bail};
use ipseity_store::{Store, StoreError};
use serde_json::json;

use crate::cli::output;
use crate::config::Config;
use crate::node::backends::background_store;

pub(super) async fn run(config: &Config, json: bool) -> Result<()> {
    let store = background_store(config, "ipseity-migrate")?;
    if let Err(error) = store.migrate().await {
        if matches!(error, StoreError::Fault(_)) {
            reject_other_version(&store).await?;
        }
        return Err(error).context("failed to update the schema (it is unchanged)");
    }
    output::print_result(json, &json!({ "pending_migrations": 0 }), "The schema is up to date.")
}

/// Fails with a better message if another version has migrated the schema.
async fn reject_other_version(store: &Store) -> Result<()> {
    let Ok(info) = store.inspect_server().await else { return Ok(()) };
    let (unknown, invalid) = (&info.unknown_migrations, &info.invalid_migrations);
    if !unknown.is_empty() {
        bail!(
            "the schema is from a newer version, which added migrations {unknown:?}. It is unchanged. Install that version; \
             nodes of this version can continue to serve meanwhile."
        );
    }
    if !invalid.is_empty() {
        bail!(
            "migrations {invalid:?} failed halfway or differ from those of this version. Restore the database from a backup, \
             or use the version that applied them."
        );
    }
    Ok(())
}
