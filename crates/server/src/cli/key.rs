//! `ipseity key …`

use anyhow::{Result, bail, ensure};
use clap::Subcommand;
use ipseity_domain::{KeyChange, KeyId, KeyStatus, LimitLevel, PlaintextKey};
use ipseity_keys::{CommittedChange, KeyActivity, StoredKey};
use ipseity_store::{Actor, KeySummary};
use serde_json::json;

use crate::cli::admin_context::{AdminContext, unix_now_s};
use crate::cli::issue::{IssueCommand, print_plaintext_key, random_byte};
use crate::cli::limits::KeyLimitsCommand;
use crate::cli::parse::parse_key_id;
use crate::cli::restrict::RestrictCommand;
use crate::cli::{key_search, output};

/// Longest time that a previous secret keeps working: 7 days.
const OVERLAP_S_MAX: i64 = 7 * 86_400;

#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Issue a key, or one key for each line of a file.
    ///
    /// A key is shown only once; only its hash is stored. With --from, the file is validated before the first
    /// key is issued. Lines whose account is missing or can have no more keys are reported and skipped.
    #[command(
        override_usage = "ipseity key issue --account <EMAIL> --scope <SCOPE> --name <NAME> [OPTIONS]
       ipseity key issue --from <FILE> --out <FILE> [OPTIONS]",
        after_long_help = "Examples:
  ipseity key issue --account you@example.com --scope full --name laptop
  ipseity key issue --account you@example.com --scope geo --name shop --origin https://example.com
  ipseity key issue --from keys.csv --out keys.jsonl --create-accounts"
    )]
    Issue(IssueCommand),
    /// Search keys by ID, by name or by the owner's email address.
    #[command(after_long_help = "Example:\n  ipseity key search laptop")]
    Search {
        /// An ID, or part of a name or an email address. Case is ignored.
        text: String,
    },
    /// Show a key: owner, status, usage, and the reason for a pause.
    Show {
        /// Key ID: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// List the keys of an account.
    List {
        /// Email address of the account's owner.
        #[arg(long, value_name = "EMAIL")]
        account: String,
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
        /// Rotate again while the previous secret still works. It stops working immediately.
        #[arg(long)]
        force: bool,
    },
    /// Replace the restrictions of a key: who may use it, and for how long.
    ///
    /// Without options, all restrictions are removed. A request that they reject is not counted.
    #[command(after_long_help = "Example:
  ipseity key restrict 0123456789 --origin https://example.com --caller-limit 30")]
    Restrict(RestrictCommand),
    /// Replace the limits that a key has instead of those of its account.
    ///
    /// A limit that is not given is that of the account. Its owner can set a lower daily limit. The limits take effect on the next request.
    #[command(after_long_help = "Example:\n  ipseity key limits 0123456789 --burst-limit 600")]
    Limits(KeyLimitsCommand),
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
        /// Confirm the deletion. Without this flag, nothing is deleted.
        #[arg(long)]
        yes: bool,
    },
}

impl KeyCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        let keys = admin.store.keys();
        match self {
            Self::Issue(issue) => issue.run(admin, json).await,
            Self::Search { text } => key_search::search_keys(admin, &text, json).await,
            Self::Show { id } => key_search::show_key(admin, id, json).await,
            Self::List { account } => {
                let rows = keys.list(admin.find_account(&account).await?.id).await?;
                let stored: Vec<StoredKey> = rows.iter().map(StoredKey::from).collect();
                print_keys(&rows, &admin.read_statuses(&stored).await?, json)
            }
            Self::Deactivate { id } => {
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.deactivate(Actor::Operator, id).await?, json)
            }
            Self::Reactivate { id } => {
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.reactivate(Actor::Operator, id).await?, json)
            }
            Self::Resume { id } => {
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.resume(Actor::Operator, id).await?, json)
            }
            Self::Rotate { id, overlap_s, force } => {
                if overlap_s > 0 && !force {
                    ensure_not_in_overlap(admin, id).await?;
                }
                let key = PlaintextKey::rotate(id, random_byte);
                let service = admin.service_for_change().await?;
                admin.warn_unless_in_effect(&service.rotate(Actor::Operator, &key.to_api_key(), overlap_s).await?)?;
                print_plaintext_key(&key, json)
            }
            Self::Restrict(restrict) => restrict.run(admin, json).await,
            Self::Limits(limits) => limits.run(admin, json).await,
            Self::InvalidateTickets { id } => {
                let service = admin.service_for_change().await?;
                admin.warn_unless_in_effect(&service.invalidate_tickets(Actor::Operator, id).await?)?;
                let value = json!({ "id": id.as_str(), "tickets_invalidated": true });
                output::print_result(json, &value, &format!("All tickets of key {id} are invalid."))
            }
            Self::EnableRestrictions => {
                keys.enable_restrictions().await?;
                let value = json!({ "restrictions_enabled": true });
                output::print_result(json, &value, "Owners can restrict their keys.")
            }
            Self::Delete { id, yes } => {
                let exists = keys.find_record(id).await?.is_some();
                ensure!(
                    yes || !exists,
                    "key {id} and its history would be permanently deleted. To confirm, add --yes."
                );
                let service = admin.service_for_change().await?;
                print_state(admin, id, &service.delete(Actor::Operator, id).await?, json)
            }
        }
    }
}

/// Fails while the previous secret of a key works. Clients may still use it, and another rotation would end it.
async fn ensure_not_in_overlap(admin: &AdminContext, id: KeyId) -> Result<()> {
    let previous = admin.store.keys().find_record(id).await?.and_then(|record| record.previous);
    let now_s = unix_now_s()?;
    if let Some(previous) = previous.filter(|previous| previous.expires_at_s > now_s) {
        let until = output::format_rfc3339(i64::try_from(previous.expires_at_s)?);
        bail!(
            "the key was rotated before, and its previous secret works until {until}. Another rotation would end it now. \
             Wait, or add --force."
        );
    }
    Ok(())
}

fn print_state(admin: &AdminContext, id: KeyId, committed: &CommittedChange, json: bool) -> Result<()> {
    admin.warn_unless_in_effect(committed)?;
    let (state, label) = match &committed.change {
        KeyChange::Updated(key_record) => {
            let (state, now_s) = (key_record.flags.state(), unix_now_s()?);
            let is_expired = key_record
                .restrictions
                .as_ref()
                .and_then(|versioned| versioned.restrictions.expires_at_s)
                .is_some_and(|at_s| at_s <= now_s);
            (state.name(), KeyStatus::of(state, is_expired, LimitLevel::Normal, LimitLevel::Normal).label())
        }
        KeyChange::Deleted(_) => ("deleted", "Deleted"),
    };
    let value = json!({ "id": id.as_str(), "state": state, "in_effect": committed.publish_error.is_none() });
    output::print_result(json, &value, &format!("Key {id} is {}.", label.to_ascii_lowercase()))
}

fn print_keys(keys: &[KeySummary], statuses: &[(KeyStatus, KeyActivity)], json: bool) -> Result<()> {
    let mut keys = keys.iter().zip(statuses);
    if json {
        return keys.try_for_each(|(key, (status, _))| {
            let (day, count) = key.last_used.clone().unzip();
            output::print_json(&json!({
                "id": key.id.as_str(),
                "name": key.name,
                "scope": key.scope.name(),
                "state": key.state.name(),
                "status": status.name(),
                "created_at": output::format_rfc3339(key.created_s),
                "last_day": day,
                "last_day_admitted": count,
            }))
        });
    }
    let rows: Vec<_> = keys
        .map(|(key, (status, _))| {
            let last_used =
                key.last_used.as_ref().map_or_else(|| "never".to_owned(), |(day, count)| format!("{day}: {count}"));
            [
                key.id.to_string(),
                key.name.clone(),
                key.scope.to_string(),
                status.label().to_owned(),
                output::format_utc(key.created_s),
                last_used,
            ]
        })
        .collect();
    output::print_table(["ID", "NAME", "SCOPE", "STATUS", "CREATED (UTC)", "LAST USED"], &rows)
}
