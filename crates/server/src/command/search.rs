//! `ipseity key search` and `ipseity key show`.

use anyhow::{Context, Result};
use domain::KeyId;
use serde_json::{Value, json};
use store::{FoundKey, KeyRow, Refused};

use super::{Desk, show as shown};

/// Keys that are shown at the most.
const FOUND_MAX: i64 = 1000;

pub(super) async fn search(desk: &Desk, text: &str, as_json: bool) -> Result<()> {
    // An id may be given as lists in the wild show it.
    let id = KeyId::parse(text);
    let found = desk.store.search_keys(id.as_ref().map_or(text, KeyId::as_str), FOUND_MAX).await?;
    if as_json {
        return found.iter().try_for_each(|key| shown::json(&described(key)));
    }
    let row = |key: &FoundKey| {
        let (scope, state) = (key.scope.to_string(), key.state.name().to_owned());
        [key.id.to_string(), key.name.clone(), scope, state, key.email.clone()]
    };
    shown::table(["ID", "NAME", "SCOPE", "STATE", "ACCOUNT"], &found.iter().map(row).collect::<Vec<_>>())
}

pub(super) async fn show(desk: &Desk, id: KeyId, as_json: bool) -> Result<()> {
    let found = desk.store.search_keys(id.as_str(), FOUND_MAX).await?;
    let key = found.into_iter().find(|key| key.id == id).ok_or(Refused::UnknownKey)?;
    let row = desk.store.find_key(key.account_id, id).await?.context(Refused::UnknownKey)?;
    if as_json {
        return shown::json(&whole(&key, &row));
    }
    let lines = [
        ("id", key.id.to_string()),
        ("name", row.name),
        ("account", key.email),
        ("scope", row.scope.to_string()),
        ("state", row.state.name().to_owned()),
        ("created", format!("{} UTC", shown::time(row.created_s))),
        ("today", format!("{} answered, as far as rolled up", row.today)),
        ("last used", row.last_used.map_or_else(|| "never".to_owned(), |(day, count)| format!("{day}: {count}"))),
        (
            "old secret",
            row.retired_until_s
                .map_or_else(|| "none".to_owned(), |until| format!("holds until {} UTC", shown::time(until))),
        ),
    ];
    lines.iter().try_for_each(|(name, value)| shown::line(&format!("{name:<12}{value}")))?;
    if let Some(pause) = row.pause {
        let requests: u32 = pause.counts.iter().map(|count| u32::from(*count)).sum();
        shown::line(&format!(
            "paused      {} UTC, after {requests} requests in the minute before; `ipseity key resume {id}` resumes it",
            shown::time(pause.at_ms / 1000)
        ))?;
    }
    Ok(())
}

fn described(key: &FoundKey) -> Value {
    json!({
        "id": key.id.as_str(),
        "name": key.name,
        "scope": key.scope.name(),
        "state": key.state.name(),
        "account": key.email,
    })
}

fn whole(key: &FoundKey, row: &KeyRow) -> Value {
    let mut all = described(key);
    all["created_at"] = json!(shown::timestamp(row.created_s));
    all["today"] = json!(row.today);
    all["last_day"] = json!(row.last_used.as_ref().map(|(day, _)| day));
    all["old_secret_until"] = json!(row.retired_until_s.map(shown::timestamp));
    all["paused_at"] = json!(row.pause.as_ref().map(|pause| shown::timestamp(pause.at_ms / 1000)));
    all["pause_counts"] = json!(row.pause.as_ref().map(|pause| &pause.counts));
    all
}
