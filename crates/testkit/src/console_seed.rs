//! The data of a large deployment, for the admin console.

use anyhow::Result;

use crate::deployment::postgres::Postgres;

/// Fills an empty migrated database: `accounts` accounts with ten keys each, refusals of 30 days, and ten audit events per account. A
/// full size of 100,000 takes about two minutes.
///
/// # Errors
/// If the database is not migrated or not empty.
pub async fn seed_console(postgres: &Postgres, database: &str, accounts: u32) -> Result<()> {
    let sql = include_str!("console_seed.sql").replace("{accounts}", &accounts.to_string());
    postgres.psql(database, &sql).await?;
    postgres.psql(database, "vacuum analyze").await?;
    Ok(())
}
