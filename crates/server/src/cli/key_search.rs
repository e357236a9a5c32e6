//! `ipseity key search` and `ipseity key show`.

use anyhow::{Context, Result};
use ipseity_domain::{KeyId, KeyStatus};
use ipseity_keys::{KeyActivity, StoredKey};
use ipseity_store::{FoundKey, KeySummary, StoreRefusal};
use serde_json::{Value, json};

use crate::cli::admin_context::AdminContext;
use crate::cli::output;
use crate::cli::restrict::{restriction_lines, restrictions_json};

const RESULTS_MAX: i64 = 1000;

pub(super) async fn search_keys(admin: &AdminContext, text: &str, as_json: bool) -> Result<()> {
    // An ID may be given with its prefix `ips_`.
    let id = KeyId::parse(text);
    let matches = admin.store.keys().search(id.as_ref().map_or(text, KeyId::as_str), RESULTS_MAX).await?;
    let keys: Vec<StoredKey> = matches.iter().map(StoredKey::from).collect();
    let mut matches = matches.iter().zip(admin.read_statuses(&keys).await?);
    if as_json {
        return matches.try_for_each(|(key, (status, _))| output::print_json(&key_summary_json(key, status)));
    }
    let row = |(key, (status, _)): (&FoundKey, (KeyStatus, KeyActivity))| {
        let (scope, status) = (key.scope.to_string(), status.label().to_owned());
        [key.id.to_string(), key.name.clone(), scope, status, key.email.clone()]
    };
    output::print_table(["ID", "NAME", "SCOPE", "STATUS", "ACCOUNT"], &matches.map(row).collect::<Vec<_>>())
}

pub(super) async fn show_key(admin: &AdminContext, id: KeyId, as_json: bool) -> Result<()> {
    let matches = admin.store.keys().search(id.as_str(), RESULTS_MAX).await?;
    let key = matches.into_iter().find(|key| key.id == id).ok_or(StoreRefusal::UnknownKey)?;
    let row = admin.store.keys().find(key.account_id, id).await?.context(StoreRefusal::UnknownKey)?;
    let (status, activity) =
        admin.read_statuses(&[StoredKey::from(&row)]).await?.pop().context(StoreRefusal::UnknownKey)?;
    if as_json {
        return output::print_json(&key_detail_json(&key, &row, (status, activity)));
    }
    let lines = [
        ("ID", key.id.to_string()),
        ("name", row.name),
        ("account", key.email),
        ("scope", row.scope.to_string()),
        ("status", status.label().to_owned()),
        ("created", format!("{} UTC", output::format_utc(row.created_s))),
        ("today", format!("{} requests", activity.used_today)),
        ("limits", format!("{} requests per day, {} in any 60 seconds", row.daily_limit, row.burst_limit)),
        ("last used", row.last_used.map_or_else(|| "never".to_owned(), |(day, count)| format!("{day}: {count}"))),
        (
            "previous secret",
            row.previous_until_s
                .map_or_else(|| "none".to_owned(), |until| format!("works until {} UTC", output::format_utc(until))),
        ),
    ];
    let restrictions = restriction_lines(&row.restrictions);
    lines
        .iter()
        .chain(&restrictions)
        .try_for_each(|(name, value)| output::print_line(&format!("{name:<17}{value}")))?;
    if let Some(pause) = row.pause {
        let requests: u32 = pause.counts.iter().map(|count| u32::from(*count)).sum();
        output::print_line(&format!(
            "paused           {} UTC, after {requests} requests in 60 seconds; run `ipseity key resume {id}` to resume it",
            output::format_utc(pause.paused_at_ms / 1000)
        ))?;
    }
    Ok(())
}

fn key_summary_json(key: &FoundKey, status: KeyStatus) -> Value {
    json!({
        "id": key.id.as_str(),
        "name": key.name,
        "scope": key.scope.name(),
        "state": key.state.name(),
        "status": status.name(),
        "account": key.email,
    })
}

fn key_detail_json(key: &FoundKey, row: &KeySummary, (status, activity): (KeyStatus, KeyActivity)) -> Value {
    let mut detail = key_summary_json(key, status);
    detail["created_at"] = json!(output::format_rfc3339(row.created_s));
    detail["today"] = json!(activity.used_today);
    detail["limits"] = json!({ "daily_limit": row.daily_limit, "burst_limit": row.burst_limit });
    detail["last_day"] = json!(row.last_used.as_ref().map(|(day, _)| day));
    detail["previous_secret_until"] = json!(row.previous_until_s.map(output::format_rfc3339));
    detail["restrictions"] = restrictions_json(&row.restrictions);
    detail["paused_at"] = json!(row.pause.as_ref().map(|pause| output::format_rfc3339(pause.paused_at_ms / 1000)));
    detail["pause_counts"] = json!(row.pause.as_ref().map(|pause| &pause.counts));
    detail
}
