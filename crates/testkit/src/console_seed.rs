//! The data of a large deployment, for the admin console.

use anyhow::Result;

use crate::deployment::postgres::Postgres;

/// Accounts per batch, so that none takes as long as a command may.
const BATCH_ACCOUNTS: u32 = 10_000;

/// Fills an empty migrated database: `accounts` accounts with ten keys each, refusals of 30 days, and ten audit events per account. The
/// full size of 100,000 takes about two minutes.
///
/// # Errors
/// If the database is not migrated or not empty.
pub async fn seed_console(postgres: &Postgres, database: &str, accounts: u32) -> Result<()> {
    postgres.psql(database, "select tend_months(400)").await?;
    for first in (1..=accounts).step_by(BATCH_ACCOUNTS as usize) {
        let last = accounts.min(first + BATCH_ACCOUNTS - 1);
        let sql = include_str!("console_seed.sql");
        let sql = [("{first}", first), ("{last}", last), ("{accounts}", accounts)]
            .iter()
            .fold(sql.to_owned(), |sql, (name, number)| sql.replace(name, &number.to_string()));
        postgres.psql(database, &sql).await?;
    }
    let totals = "insert into refusal_totals (day, reason, shard, count)
                  select day, reason, shard, sum(count) from refusals, generate_series(0, 15) shard group by day, reason, shard";
    postgres.psql(database, totals).await?;
    postgres.psql(database, "vacuum analyze").await?;
    Ok(())
}
