//! Search for accounts and keys.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use ipseity_domain::{KEY_PREFIX, KeyId};
use ipseity_keys::{KeyActivity, StoredKey};
use ipseity_store::FoundAccount;
use serde::Deserialize;

use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::state::Console;
use crate::console::view::accounts::{AccountItem, ConsoleSearchPage, FoundKeyItem};
use crate::console::view::frame::ConsoleTab;
use crate::page::render_page;
use crate::time;

/// Maximum number of accounts, and of keys, on the page.
const RESULTS_MAX: i64 = 50;
const KEY_ID_CHARS: usize = 10;

#[derive(Deserialize)]
pub(super) struct SearchQuery {
    #[serde(default)]
    q: String,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    Query(SearchQuery { q }): Query<SearchQuery>,
) -> Result<Response, ConsoleError> {
    // PostgreSQL stores no NUL.
    let text: String = q.trim().chars().filter(|character| *character != '\0').collect();
    // Somebody may paste a whole key. Its secret is not searched for, and does not stay in the address bar.
    if let Some(id) = id_of_pasted_key(&text) {
        return Ok(Redirect::to(&format!("/keys/{id}")).into_response());
    }
    let (accounts, keys) = if text.is_empty() {
        (Vec::new(), Vec::new())
    } else {
        let search = console.store.console();
        tokio::try_join!(search.search_accounts(&text, RESULTS_MAX), search.search_keys(&text, RESULTS_MAX))?
    };
    let stored: Vec<StoredKey> = keys.iter().map(StoredKey::from).collect();
    let now_s = time::now_s();
    let activities = KeyActivity::read_or_last_flush(&console.ledger, &stored, now_s).await;
    let statuses = stored.iter().zip(activities).map(|(key, activity)| key.status(activity, now_s));
    let is_cut = [accounts.len(), keys.len()].contains(&usize::try_from(RESULTS_MAX).unwrap_or(usize::MAX));
    Ok(render_page(&ConsoleSearchPage {
        frame: operator.frame("Search", ConsoleTab::Search),
        text,
        accounts: accounts.into_iter().map(account_item).collect(),
        keys: keys.iter().zip(statuses).map(|(key, status)| FoundKeyItem::new(key, status)).collect(),
        is_cut,
    }))
}

/// The id of a key anywhere in the text, such as in a header or a URL.
fn id_of_pasted_key(text: &str) -> Option<KeyId> {
    let (_, key) = text.split_once(KEY_PREFIX)?;
    let (id, secret) = key.split_at_checked(KEY_ID_CHARS)?;
    secret.starts_with(|character: char| character.is_ascii_alphanumeric()).then(|| KeyId::parse(id)).flatten()
}

pub(super) fn account_item(account: FoundAccount) -> AccountItem {
    AccountItem {
        id: account.id,
        email: account.email,
        plan: account.plan,
        keys: account.key_count,
        created: time::format_date(account.created_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_of_a_pasted_key_is_not_searched_for() {
        let id = KeyId::parse("0123456789");
        let key = format!("ips_0123456789{}", "a".repeat(36));
        for pasted in [key.clone(), format!("\"{key}\""), format!("Bearer {key}"), format!("/api/v1/ip?key={key}&a=b")]
        {
            assert_eq!(id_of_pasted_key(&pasted), id, "{pasted}");
        }
        for other in ["ips_0123456789", "\"ips_0123456789\"", "ips_shop", "ips_ünïcödë-name", "laptop"] {
            assert_eq!(id_of_pasted_key(other), None, "{other}");
        }
    }
}
