//! `ipseity audit`

use anyhow::Result;
use clap::Args;
use ipseity_domain::KeyId;
use serde_json::json;

use crate::cli::account::find_account;
use crate::cli::key::parse_key_id;
use crate::cli::{AdminContext, output};

#[derive(Args)]
pub(super) struct AuditCommand {
    /// Only keys of the account with this e-mail address.
    #[arg(long, value_name = "EMAIL")]
    account: Option<String>,
    /// Only the key with this id.
    #[arg(long, value_name = "ID", value_parser = parse_key_id)]
    key: Option<KeyId>,
    /// How many events to show.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
    /// Print JSON, one event a line.
    #[arg(long)]
    json: bool,
}

impl AuditCommand {
    pub(super) async fn run(&self, admin: &AdminContext) -> Result<()> {
        let account_id = match &self.account {
            Some(email) => Some(find_account(admin, email).await?.id),
            None => None,
        };
        let rows = admin.store.audit_log().list(account_id, self.key, self.limit).await?;
        if self.json {
            return rows.iter().try_for_each(|row| {
                output::print_json(&json!({
                    "at": output::format_rfc3339(row.event.at_s),
                    "key": row.key_id,
                    "account": row.email,
                    "act": row.event.action,
                    "actor": row.event.actor,
                }))
            });
        }
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| [output::format_utc(row.event.at_s), row.key_id, row.event.action, row.event.actor, row.email])
            .collect();
        output::print_table(["WHEN (UTC)", "KEY", "WHAT", "BY", "ACCOUNT"], &rows)
    }
}
