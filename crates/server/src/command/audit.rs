//! `ipseity audit`

use anyhow::Result;
use clap::Args;
use domain::KeyId;
use serde_json::json;

use super::account::find;
use super::key::read_id;
use super::{Desk, show};

#[derive(Args)]
pub(super) struct Audit {
    /// Only keys of the account with this e-mail address.
    #[arg(long, value_name = "EMAIL")]
    account: Option<String>,
    /// Only the key with this id.
    #[arg(long, value_name = "ID", value_parser = read_id)]
    key: Option<KeyId>,
    /// How many events to show.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    count: i64,
    /// Print JSON, one event a line.
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(super) async fn run(&self, desk: &Desk) -> Result<()> {
        let account_id = match &self.account {
            Some(email) => Some(find(desk, email).await?.id),
            None => None,
        };
        let rows = desk.store.audit(account_id, self.key, self.count).await?;
        if self.json {
            return rows.iter().try_for_each(|row| {
                show::json(&json!({
                    "at": show::timestamp(row.event.at_s),
                    "key": row.key_id,
                    "account": row.email,
                    "act": row.event.act,
                    "actor": row.event.actor,
                }))
            });
        }
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| [show::time(row.event.at_s), row.key_id, row.event.act, row.event.actor, row.email])
            .collect();
        show::table(["WHEN (UTC)", "KEY", "WHAT", "BY", "ACCOUNT"], &rows)
    }
}
