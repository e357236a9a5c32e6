//! `ipseity key …`

use anyhow::{Context, Result};
use clap::Subcommand;
use ipseity_domain::account::KeyName;
use ipseity_domain::{KeyChange, KeyId, PlaintextKey, Scope};
use ipseity_store::{Actor, KeySummary};
use serde_json::json;

use crate::cli::account::find_account;
use crate::cli::{AdminContext, key_search, output};

/// The longest that a rolled key's old secret may hold: 7 days.
const OVERLAP_S_MAX: i64 = 7 * 86_400;

#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Issue a key. It is shown once, now, and never again.
    ///
    /// Only its digest is stored. An account can hold ten.
    #[command(after_long_help = "Example:\n  ipseity key issue --account you@example.com --scope full --name laptop")]
    Issue {
        /// The e-mail address of the account's owner.
        #[arg(long, value_name = "EMAIL")]
        account: String,
        /// What the key may see: ip, geo or full.
        #[arg(long, value_parser = parse_scope)]
        scope: Scope,
        /// What the owner calls it.
        #[arg(long)]
        name: String,
        /// Print JSON with `id` and `key`.
        #[arg(long)]
        json: bool,
    },
    /// Issue many keys, one for each line of a file.
    ///
    /// The file is read whole before the first key is made. Lines that are refused, because an account is missing or holds ten keys, are named,
    /// and the others go on.
    #[command(
        after_long_help = "Example:\n  echo 'you@example.com,geo,web' > wanted.csv\n  ipseity key issue-all wanted.csv --out keys.jsonl --create-accounts"
    )]
    IssueMany(crate::cli::issue_many::IssueMany),
    /// Find keys by id, by name, or by their owner's e-mail address.
    #[command(after_long_help = "Example:\n  ipseity key search laptop")]
    Search {
        /// An id, or a part of a name or an address, in whatever case.
        text: String,
        /// Print JSON, one key a line.
        #[arg(long)]
        json: bool,
    },
    /// Show a key: whose it is, its state, its use, and why it is paused if it is.
    Show {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List an account's keys.
    List {
        /// The e-mail address of the account's owner.
        #[arg(long, value_name = "EMAIL")]
        account: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Refuse a key from the next request on.
    Deactivate {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// Undo a deactivation; a key that was paused before is paused still.
    Reactivate {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// Resume a key that was paused for exceeding the burst limit.
    ///
    /// Its minute begins anew; its day goes on. `ipseity key show` shows the minute before the pause.
    Resume {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
    /// Put a new secret under a key's id and quota. It is shown once, now, and never again.
    ///
    /// The old secret holds for the overlap, so that callers can be changed one after the other; both count on the same day and minute.
    Rotate {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
        /// How long the old secret still holds, in seconds; 7 days at the most.
        #[arg(long, value_name = "S", default_value_t = 86_400, value_parser = clap::value_parser!(u32).range(0..=OVERLAP_S_MAX))]
        overlap_s: u32,
        /// Print JSON with `id` and `key`.
        #[arg(long)]
        json: bool,
    },
    /// Delete a key and its history.
    Delete {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = parse_key_id)]
        id: KeyId,
    },
}

impl KeyCommand {
    pub(super) async fn run(self, admin: &AdminContext) -> Result<()> {
        match self {
            Self::Issue { account, scope, name, json } => {
                let account = find_account(admin, &account).await?;
                let name = KeyName::parse(&name)
                    .context("a key's name has 1 to 100 characters, none of them a control character")?;
                let clear_key = PlaintextKey::generate(random_byte);
                admin.store.keys().create(&account, Actor::Operator, &name, scope, &clear_key.to_api_key()).await?;
                print_clear_key(&clear_key, json)
            }
            Self::IssueMany(many) => many.run(admin).await,
            Self::Search { text, json } => key_search::search_keys(admin, &text, json).await,
            Self::Show { id, json } => key_search::show_key(admin, id, json).await,
            Self::List { account, json } => {
                print_keys(&admin.store.keys().list(find_account(admin, &account).await?.id).await?, json)
            }
            Self::Deactivate { id } => {
                publish_and_print_state(admin, id, admin.store.keys().deactivate(Actor::Operator, id).await?).await
            }
            Self::Reactivate { id } => {
                publish_and_print_state(admin, id, admin.store.keys().reactivate(Actor::Operator, id).await?).await
            }
            Self::Resume { id } => {
                admin.record_pauses(id).await?;
                publish_and_print_state(admin, id, admin.store.keys().resume(Actor::Operator, id).await?).await
            }
            Self::Rotate { id, overlap_s, json } => {
                let clear_key = PlaintextKey::rotate(id, random_byte);
                admin
                    .publish_change(
                        &admin.store.keys().rotate(Actor::Operator, &clear_key.to_api_key(), overlap_s).await?,
                    )
                    .await?;
                print_clear_key(&clear_key, json)
            }
            Self::Delete { id } => {
                publish_and_print_state(admin, id, admin.store.keys().delete(Actor::Operator, id).await?).await
            }
        }
    }
}

/// Publishes a change and says what the key is now.
async fn publish_and_print_state(admin: &AdminContext, id: KeyId, change: KeyChange) -> Result<()> {
    admin.publish_change(&change).await?;
    let state = match change {
        KeyChange::Updated(key_record) => key_record.flags.state().name(),
        KeyChange::Deleted(_) => "deleted",
    };
    output::print_line(&format!("Key {id} is {state}."))
}

fn print_clear_key(clear_key: &PlaintextKey, json: bool) -> Result<()> {
    let id = clear_key.to_api_key().id;
    if json {
        return output::print_json(&json!({ "id": id.as_str(), "key": clear_key.expose() }));
    }
    output::print_line(&format!("Key {id}, shown this once; store it safely:\n\n    {}", clear_key.expose()))
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

fn parse_scope(text: &str) -> Result<Scope, &'static str> {
    Scope::parse(text).ok_or("use ip, geo or full")
}

pub(super) fn parse_key_id(text: &str) -> Result<KeyId, &'static str> {
    KeyId::parse(text).ok_or("an id is the ten letters and digits after `ips_`; `ipseity key list` shows it")
}

pub(super) fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("the system gives random bytes");
    byte[0]
}
