//! The page of an account, and what operators can do for its owner.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_domain::account::EmailAddress;
use ipseity_domain::{BURST_LIMIT_MAX, DAILY_LIMIT_MAX, KEYS_MAX_LIMIT, KeyChange, KeyId, LimitOverrides};
use ipseity_store::{Account, AuditFilter};

use crate::auth::csrf_form::CsrfForm;
use crate::console::audit::event_item;
use crate::console::error::ConsoleError;
use crate::console::host::OperatorStores;
use crate::console::operator::CurrentOperator;
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::accounts::{AccountKeyItem, ConsoleAccountPage, ConsoleDeleteAccountPage, LimitFields};
use crate::console::view::frame::ConsoleTab;
use crate::keys::list::{key_status, load_activities};
use crate::page::{redirect_with_notice, render_page};
use crate::time;

/// Maximum number of events on the page.
const EVENTS_MAX: i64 = 20;

impl Console {
    async fn find_account(&self, id: i64) -> Result<Account, ConsoleError> {
        self.store.accounts().find(id).await?.ok_or(ConsoleError::NotFound)
    }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let account = console.find_account(id).await?;
    let store = &console.store;
    let filter = AuditFilter { account_id: Some(id), ..AuditFilter::default() };
    let (keys, factors, overrides, plans, events) = tokio::try_join!(
        store.keys().list(id),
        store.two_factor().factors(id),
        store.accounts().overrides(id),
        store.plans().list(),
        store.audit_log().list(&filter, EVENTS_MAX),
    )?;
    let activities = load_activities(&console.ledger, &keys).await;
    let key_item = |(row, activity): (&ipseity_store::KeySummary, ipseity_keys::KeyActivity)| AccountKeyItem {
        id: row.id.to_string(),
        name: row.name.clone(),
        scope: row.scope.name(),
        status: key_status(row, activity),
        used_today: activity.used_today,
        daily_limit: row.daily_limit,
    };
    Ok(render_page(&ConsoleAccountPage {
        frame: operator.frame(&account.email, ConsoleTab::Search),
        created: time::format_date(account.created_s),
        has_two_factor: factors.is_enabled,
        keys: keys.iter().zip(activities).map(key_item).collect(),
        plans: plans.into_iter().map(|plan| plan.name).collect(),
        limits: LimitFields::new(overrides),
        events: events.into_iter().map(event_item).collect(),
        account,
    }))
}

pub(super) async fn send_password_reset(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let account = console.find_account(id).await?;
    let email = EmailAddress::parse(&account.email).ok_or(ConsoleError::NotFound)?;
    console.require_email()?;
    let stores = console.stores_of(&operator.operator)?;
    let requests = stores.store.email_requests(console.settings.emails_per_address_per_hour_max);
    if !requests.request_password_reset(&email).await? {
        return Err(ConsoleError::Rejected(
            "This address got too many of these emails in the last hour. Try again later.".to_owned(),
        ));
    }
    Ok(redirect_with_notice(&format!("/accounts/{id}"), "queued"))
}

pub(super) async fn set_plan(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let account = console.find_account(id).await?;
    let stores = console.stores_of(&operator.operator)?;
    let keys = stores.store.accounts().set_plan(&account, form.field("plan")).await?;
    let notice = publish_all(&stores, keys, "plan").await?;
    Ok(redirect_with_notice(&format!("/accounts/{id}"), notice))
}

pub(super) async fn set_limits(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let account = console.find_account(id).await?;
    let limits = LimitOverrides { keys_max: parse_limit(&form, "keys_max", KEYS_MAX_LIMIT)?, ..parse_limits(&form)? };
    let stores = console.stores_of(&operator.operator)?;
    let keys = stores.store.accounts().set_limits(&account, limits).await?;
    let notice = publish_all(&stores, keys, "limits").await?;
    Ok(redirect_with_notice(&format!("/accounts/{id}"), notice))
}

pub(super) async fn disable_two_factor(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.find_account(id).await?;
    console.stores_of(&operator.operator)?.store.two_factor().disable(id, None).await?;
    Ok(redirect_with_notice(&format!("/accounts/{id}"), "two-factor-off"))
}

pub(super) async fn delete_form(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let account = console.find_account(id).await?;
    let keys = console.store.keys().list(id).await?.len();
    Ok(render_page(&ConsoleDeleteAccountPage {
        frame: operator.frame("Delete account", ConsoleTab::Search),
        account,
        keys,
    }))
}

pub(super) async fn delete(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let account = console.find_account(id).await?;
    if !form.field("email").trim().eq_ignore_ascii_case(&account.email) {
        return Err(ConsoleError::Rejected("This isn’t the email address of the account.".to_owned()));
    }
    let stores = console.stores_of(&operator.operator)?;
    let mut notice = "account-deleted";
    for key in stores.store.accounts().delete(id, None).await? {
        if stores.key_service.publish(KeyChange::Deleted(key)).await.publish_error.is_some() {
            notice = "saved";
        }
    }
    Ok(redirect_with_notice("/search", notice))
}

/// Publishes the changed records of keys. Returns the notice: the given one, or that it is saved and takes effect later.
pub(super) async fn publish_all(
    stores: &OperatorStores,
    keys: Vec<KeyId>,
    notice: &'static str,
) -> Result<&'static str, ConsoleError> {
    let mut outcome = notice;
    for id in keys {
        let change = stores.store.keys().find_change(id).await?;
        if stores.key_service.publish(change).await.publish_error.is_some() {
            outcome = "saved";
        }
    }
    Ok(outcome)
}

/// Reads the limits of a form. An empty field is that of the plan or account.
pub(super) fn parse_limits(form: &CsrfForm) -> Result<LimitOverrides, ConsoleError> {
    Ok(LimitOverrides {
        daily_limit: parse_limit(form, "daily_limit", DAILY_LIMIT_MAX)?,
        burst_limit: parse_limit(form, "burst_limit", BURST_LIMIT_MAX)?,
        keys_max: None,
    })
}

fn parse_limit<T: std::str::FromStr + PartialOrd + From<u8> + std::fmt::Display>(
    form: &CsrfForm,
    name: &str,
    max: T,
) -> Result<Option<T>, ConsoleError> {
    let text = form.field(name).trim();
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse().ok().filter(|number| *number >= T::from(1) && *number <= max);
    number
        .map(Some)
        .ok_or_else(|| ConsoleError::Rejected(format!("Enter numbers from 1 to {max}, or leave the field empty.")))
}
