//! `ipseity key …`

use anyhow::{Context, Result};
use clap::Subcommand;
use domain::account::KeyName;
use domain::{Change, ClearKey, KeyId, Scope};
use serde_json::json;
use store::{By, KeyRow};

use super::account::find;
use super::{Desk, search, show};

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
        #[arg(long, value_parser = read_scope)]
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
    IssueAll(super::bulk::IssueAll),
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
        #[arg(value_parser = read_id)]
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
        #[arg(value_parser = read_id)]
        id: KeyId,
    },
    /// Undo a deactivation; a key that was paused before is paused still.
    Reactivate {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = read_id)]
        id: KeyId,
    },
    /// Resume a key that was paused for exceeding the burst limit.
    ///
    /// Its minute begins anew; its day goes on. `ipseity key show` shows the minute before the pause.
    Resume {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = read_id)]
        id: KeyId,
    },
    /// Put a new secret under a key's id and quota. It is shown once, now, and never again.
    ///
    /// The old secret holds for the overlap, so that callers can be changed one after the other; both count on the same day and minute.
    Roll {
        /// The key's id: the ten characters after `ips_`.
        #[arg(value_parser = read_id)]
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
        #[arg(value_parser = read_id)]
        id: KeyId,
    },
}

impl KeyCommand {
    pub(super) async fn run(self, desk: &Desk) -> Result<()> {
        match self {
            Self::Issue { account, scope, name, json } => {
                let account = find(desk, &account).await?;
                let name = KeyName::parse(&name)
                    .context("a key's name has 1 to 100 characters, none of them a control character")?;
                let clear = ClearKey::mint(random_byte);
                desk.store.issue(&account, By::Operator, &name, scope, &clear.key()).await?;
                reveal(&clear, json)
            }
            Self::IssueAll(all) => all.run(desk).await,
            Self::Search { text, json } => search::search(desk, &text, json).await,
            Self::Show { id, json } => search::show(desk, id, json).await,
            Self::List { account, json } => list(&desk.store.keys(find(desk, &account).await?.id).await?, json),
            Self::Deactivate { id } => changed(desk, id, desk.store.deactivate(By::Operator, id).await?).await,
            Self::Reactivate { id } => changed(desk, id, desk.store.reactivate(By::Operator, id).await?).await,
            Self::Resume { id } => {
                desk.settle(id).await?;
                changed(desk, id, desk.store.resume(By::Operator, id).await?).await
            }
            Self::Roll { id, overlap_s, json } => {
                let clear = ClearKey::roll(id, random_byte);
                desk.publish(&desk.store.roll(By::Operator, &clear.key(), overlap_s).await?).await?;
                reveal(&clear, json)
            }
            Self::Delete { id } => changed(desk, id, desk.store.delete(By::Operator, id).await?).await,
        }
    }
}

/// Publishes a change and says what the key is now.
async fn changed(desk: &Desk, id: KeyId, change: Change) -> Result<()> {
    desk.publish(&change).await?;
    let now = match change {
        Change::Stands(standing) => standing.marks.state().name(),
        Change::Gone(_) => "deleted",
    };
    show::line(&format!("Key {id} is {now}."))
}

fn reveal(clear: &ClearKey, json: bool) -> Result<()> {
    let id = clear.key().id;
    if json {
        return show::json(&json!({ "id": id.as_str(), "key": clear.expose() }));
    }
    show::line(&format!("Key {id}, shown this once; store it safely:\n\n    {}", clear.expose()))
}

fn list(keys: &[KeyRow], json: bool) -> Result<()> {
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
                    "created_at": show::timestamp(key.created_s),
                    "last_day": day,
                    "last_day_admitted": count,
                })
            })
            .collect();
        return show::json(&json!(keys));
    }
    let rows: Vec<_> = keys
        .iter()
        .map(|key| {
            let used =
                key.last_used.as_ref().map_or_else(|| "never".to_owned(), |(day, count)| format!("{day}: {count}"));
            [
                key.id.to_string(),
                key.name.clone(),
                key.scope.to_string(),
                key.state.name().to_owned(),
                show::time(key.created_s),
                used,
            ]
        })
        .collect();
    show::table(["ID", "NAME", "SCOPE", "STATE", "CREATED (UTC)", "LAST USED"], &rows)
}

fn read_scope(text: &str) -> Result<Scope, &'static str> {
    Scope::parse(text).ok_or("use ip, geo or full")
}

pub(super) fn read_id(text: &str) -> Result<KeyId, &'static str> {
    KeyId::parse(text).ok_or("an id is the ten letters and digits after `ips_`; `ipseity key list` shows it")
}

pub(super) fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("the system gives random bytes");
    byte[0]
}
