//! `ipseity audit`

use anyhow::Result;
use clap::Args;
use ipseity_domain::KeyId;
use serde_json::json;

use crate::cli::admin_context::AdminContext;
use crate::cli::output;
use crate::cli::parse::parse_key_id;

#[derive(Args)]
pub(super) struct AuditCommand {
    /// Only keys of the account with this email address.
    #[arg(long, value_name = "EMAIL")]
    account: Option<String>,
    /// Only the key with this ID.
    #[arg(long, value_name = "ID", value_parser = parse_key_id)]
    key: Option<KeyId>,
    /// Maximum number of events.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
    /// Print JSON, one event per line.
    #[arg(long)]
    json: bool,
}

impl AuditCommand {
    pub(super) async fn run(&self, admin: &AdminContext) -> Result<()> {
        let account_id = match &self.account {
            Some(email) => Some(admin.find_account(email).await?.id),
            None => None,
        };
        let rows = admin.store.audit_log().list(account_id, self.key, self.limit).await?;
        if self.json {
            return rows.iter().try_for_each(|row| {
                output::print_json(&json!({
                    "at": output::format_rfc3339(row.event.at_s),
                    "key": row.key_id,
                    "account": row.email,
                    "action": action_name(&row.event.action),
                    "actor": row.event.actor,
                }))
            });
        }
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| {
                let action = action_name(&row.event.action).to_owned();
                [output::format_utc(row.event.at_s), row.key_id, action, row.event.actor, row.email]
            })
            .collect();
        output::print_table(["TIME (UTC)", "KEY", "ACTION", "ACTOR", "ACCOUNT"], &rows)
    }
}

/// PostgreSQL stores rotations under their former names.
fn action_name(stored: &str) -> &str {
    match stored {
        "rolled" => "rotated",
        "retired" => "previous_revoked",
        other => other,
    }
}
