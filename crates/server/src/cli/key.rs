//! `ipseity key …`

use anyhow::Result;
use clap::Subcommand;
use ipseity_domain::{KeyChange, KeyId, PlaintextKey};
use ipseity_keys::CommittedChange;
use ipseity_store::{Actor, KeySummary};
use serde_json::json;

use crate::cli::admin_context::AdminContext;
use crate::cli::issue::{IssueCommand, print_plaintext_key, random_byte};
use crate::cli::parse::parse_key_id;
use crate::cli::restrict::RestrictCommand;
use crate::cli::{key_search, output};

/// Longest time that a previous secret keeps working: 7 days.
const OVERLAP_S_MAX: i64 = 7 * 86_400;

#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Issue a key, or one key for each line of a file.
    ///
    /// A key is shown only once; only its hash is stored. An account can have up to 10 keys. With --from, the file is validated before the first
    /// key is issued. Lines whose account is missing or already has 10 keys are reported and skipped.
    #[command(
        override_usage = "ipseity key issue --account <EMAIL> --scope <SCOPE> --name <NAME> [--json]
       ipseity key issue --from <FILE> --out <FILE> [--create-accounts]",
        after_long_help = "Examples:
  ipseity key issue --account you@example.com --scope full --name laptop
  ipseity key issue --from keys.csv --out keys.jsonl --create-accounts"
    )]
    Issue(IssueCommand),
    /// Search keys by ID, by name or by the owner's email address.
    #[command(after_long_help = "Example:\n  ipseity key search laptop")]
    Search {
        /// An ID, or part of a name or an email address. Case is ignored.
        text: String,
        /// Print JSON, one key per line.
        #[arg(long)]
        json: bool,
    },
    /// Show a key: owner, state, usage, and the reason for a pause.
    Show {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the keys of an account.
    List {
        /// Email address of the account's owner.
        #[arg(long, value_name = "EMAIL")]
        account: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Deactivate a key.
    ///
    /// Its requests are rejected until you reactivate it.
    Deactivate {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// Reactivate a key.
    ///
    /// A key that was paused before stays paused.
    Reactivate {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// Resume a key that was paused for exceeding the burst limit.
    ///
    /// The 60-second window starts again; the daily quota does not change. `ipseity key show` shows the requests that led to the pause.
    Resume {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// Rotate a key: issue a new secret with the same ID and limits.
    ///
    /// The new secret is shown only once. The previous secret keeps working during the overlap, so that you can update clients one by one. Both
    /// secrets share the daily quota and the burst limit.
    Rotate {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
        /// How long the previous secret keeps working, in seconds; at most 7 days.
        #[arg(long, value_name = "S", default_value_t = 86_400, value_parser = clap::value_parser!(u32).range(0..=OVERLAP_S_MAX))]
        overlap_s: u32,
        /// Print JSON with `id` and `key`.
        #[arg(long)]
        json: bool,
    },
    /// Replace the restrictions of a key: who may use it, and for how long.
    ///
    /// Without options, all restrictions are removed. A request that they reject is not counted.
    #[command(after_long_help = "Example:
  ipseity key restrict 0123456789 --origin https://example.com --caller-limit 30")]
    Restrict(RestrictCommand),
    /// Invalidate all tickets that were created with a key.
    ///
    /// Tickets that are created later work. Rotating a key without overlap also invalidates them.
    InvalidateTickets {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// Confirm that all nodes know restrictions, so that owners can set them.
    ///
    /// Nodes of older versions ignore them. Upgrade all nodes first. A new database needs no confirmation.
    EnableRestrictions,
    /// Permanently delete a key and its history.
    Delete {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
}

impl KeyCommand {
    pub(super) async fn run(self, admin: &AdminContext) -> Result<()> {
        let keys = admin.store.keys();
        match self {
            Self::Issue(issue) => issue.run(admin).await,
            Self::Search { text, json } => key_search::search_keys(admin, &text, json).await,
            Self::Show { id, json } => key_search::show_key(admin, id, json).await,
            Self::List { account, json } => print_keys(&keys.list(admin.find_account(&account).await?.id).await?, json),
            Self::Deactivate { id } => {
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.deactivate(Actor::Operator, id).await?)
            }
            Self::Reactivate { id } => {
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.reactivate(Actor::Operator, id).await?)
            }
            Self::Resume { id } => {
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.resume(Actor::Operator, id).await?)
            }
            Self::Rotate { id, overlap_s, json } => {
                let key = PlaintextKey::rotate(id, random_byte);
                let service = admin.service_for_change().await?;
                admin.warn_unless_in_effect(&service.rotate(Actor::Operator, &key.to_api_key(), overlap_s).await?)?;
                print_plaintext_key(&key, json)
            }
            Self::Restrict(restrict) => restrict.run(admin).await,
            Self::InvalidateTickets { id } => {
                let service = admin.service_for_change().await?;
                admin.warn_unless_in_effect(&service.invalidate_tickets(Actor::Operator, id).await?)?;
                output::print_line(&format!("All tickets of key {id} are invalid."))
            }
            Self::EnableRestrictions => {
                keys.enable_restrictions().await?;
                output::print_line("Owners can restrict their keys.")
            }
            Self::Delete { id } => {
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.delete(Actor::Operator, id).await?)
            }
        }
    }
}

fn print_state(admin: &AdminContext, id: KeyId, committed: &CommittedChange) -> Result<()> {
    admin.warn_unless_in_effect(committed)?;
    let state = match &committed.change {
        KeyChange::Updated(key_record) => key_record.flags.state().name(),
        KeyChange::Deleted(_) => "deleted",
    };
    output::print_line(&format!("Key {id} is {state}."))
}

fn print_keys(keys: &[KeySummary], json: bool) -> Result<()> {
    if json {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| {
                let (day, count) = key.last_used.clone().unzip();
                json!({
                    "id": key.id.as_str(),
                    "name": key.name,
                    "scope": key.scope.name(),
                    "state": key.state.name(),
                    "created_at": output::format_rfc3339(key.created_s),
                    "last_day": day,
                    "last_day_admitted": count,
                })
            })
            .collect();
        return output::print_json(&json!(keys));
    }
    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            let last_used =
                key.last_used.as_ref().map_or_else(|| "never".to_owned(), |(day, count)| format!("{day}: {count}"));
            [
                key.id.to_string(),
                key.name.clone(),
                key.scope.to_string(),
                key.state.name().to_owned(),
                output::format_utc(key.created_s),
                last_used,
            ]
        })
        .collect();
    output::print_table(["ID", "NAME", "SCOPE", "STATE", "CREATED (UTC)", "LAST USED"], &rows)
}
