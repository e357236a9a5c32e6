//! Pages about accounts and keys.

use askama::Template;
use ipseity_domain::{KeyStatus, LimitOverrides};
use ipseity_store::{Account, FoundKey};

use crate::console::view::frame::ConsoleFrame;
use crate::console::view::overview::AuditEventItem;
use crate::view::filters;
use crate::view::keys::{KeyCard, KeyHistoryRow};
use crate::view::restrictions::{RestrictionsError, RestrictionsPanel};
use crate::view::style_class::StyleClass;
use crate::view::usage::UsageView;

/// An account in a list.
pub(crate) struct AccountItem {
    pub(crate) id: i64,
    pub(crate) email: String,
    pub(crate) plan: String,
    pub(crate) keys: i64,
    pub(crate) created: String,
}

/// A key that a search found.
pub(crate) struct FoundKeyItem {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scope: &'static str,
    pub(crate) status: KeyStatus,
    pub(crate) account_id: i64,
    pub(crate) email: String,
}

impl FoundKeyItem {
    pub(crate) fn new(key: &FoundKey, status: KeyStatus) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.name.clone(),
            scope: key.scope.name(),
            status,
            account_id: key.account_id,
            email: key.email.clone(),
        }
    }
}

/// `/search`
#[derive(Template)]
#[template(path = "console/search.html")]
pub(crate) struct ConsoleSearchPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) text: String,
    pub(crate) accounts: Vec<AccountItem>,
    pub(crate) keys: Vec<FoundKeyItem>,
    /// Whether there may be more than the page shows.
    pub(crate) is_cut: bool,
}

/// A key on the page of its account.
pub(crate) struct AccountKeyItem {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scope: &'static str,
    pub(crate) status: KeyStatus,
    pub(crate) used_today: u64,
    pub(crate) daily_limit: u64,
}

/// The fields of dedicated limits; empty where the plan applies.
pub(crate) struct LimitFields {
    pub(crate) daily_limit: String,
    pub(crate) burst_limit: String,
    pub(crate) keys_max: String,
}

impl LimitFields {
    pub(crate) fn new(overrides: LimitOverrides) -> Self {
        let text = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        Self {
            daily_limit: text(overrides.daily_limit),
            burst_limit: overrides.burst_limit.map(|number| number.to_string()).unwrap_or_default(),
            keys_max: overrides.keys_max.map(|number| number.to_string()).unwrap_or_default(),
        }
    }
}

/// `/accounts/{id}`
#[derive(Template)]
#[template(path = "console/account.html")]
pub(crate) struct ConsoleAccountPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) account: Account,
    pub(crate) created: String,
    pub(crate) has_two_factor: bool,
    pub(crate) keys: Vec<AccountKeyItem>,
    pub(crate) plans: Vec<String>,
    pub(crate) limits: LimitFields,
    pub(crate) events: Vec<AuditEventItem>,
}

/// `/accounts/{id}/delete`
#[derive(Template)]
#[template(path = "console/delete_account.html")]
pub(crate) struct ConsoleDeleteAccountPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) account: Account,
    /// Number of keys.
    pub(crate) keys: usize,
}

/// `/keys/{id}`
#[derive(Template)]
#[template(path = "console/key.html")]
pub(crate) struct ConsoleKeyPage {
    pub(crate) frame: ConsoleFrame,
    /// Public URL of the service, for links to the documentation.
    pub(crate) base_url: String,
    pub(crate) card: KeyCard,
    pub(crate) account_id: i64,
    pub(crate) email: String,
    pub(crate) usage: UsageView,
    pub(crate) restrictions: RestrictionsPanel,
    pub(crate) limits: LimitFields,
    pub(crate) history: Vec<KeyHistoryRow>,
}
