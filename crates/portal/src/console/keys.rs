//! The page of a key, and what operators can do for its owner. There is no rotation: an operator would see the new secret.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_domain::KeyId;
use ipseity_domain::restrictions::warning::RestrictionContext;
use ipseity_keys::CommittedChange;
use ipseity_store::{Account, Actor, KeySummary, StoreError, StoreRefusal};

use crate::auth::csrf_form::CsrfForm;
use crate::console::accounts::parse_limits;
use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::accounts::{ConsoleKeyPage, LimitFields};
use crate::console::view::frame::ConsoleTab;
use crate::keys::detail::history_entry;
use crate::keys::list::{key_card, load_activity};
use crate::keys::usage::{last_days, usage_view};
use crate::page::{redirect_with_notice, render_page};
use crate::state::change_notice;
use crate::time;
use crate::view::restrictions::{RestrictionFields, RestrictionsError, RestrictionsPanel};

/// Maximum number of history rows on the page.
const HISTORY_ROWS_MAX: i64 = 50;

impl Console {
    async fn find_key(&self, id: &str) -> Result<(Account, KeySummary), ConsoleError> {
        let id = parse_key_id(id)?;
        let account = self.store.keys().find_account(id).await?.ok_or(ConsoleError::NotFound)?;
        let key = self.store.keys().find(account.id, id).await?.ok_or(ConsoleError::NotFound)?;
        Ok((account, key))
    }

    async fn load_key_page(&self, operator: &CurrentOperator, id: &str) -> Result<ConsoleKeyPage, ConsoleError> {
        let (account, row) = self.find_key(id).await?;
        let store = &self.store;
        let (usage, history, overrides, nodes) = tokio::try_join!(
            store.usage().list(account.id, Some(row.id), last_days()),
            store.audit_log().list_for_key(account.id, row.id, None, HISTORY_ROWS_MAX),
            store.keys().overrides(row.id),
            store.deployment().node_count(),
        )?;
        let activity = load_activity(&self.ledger, &row).await;
        let (daily_limit, burst_limit) = (row.daily_limit, row.burst_limit);
        let context = RestrictionContext { daily_limit, burst_limit, nodes, now_s: time::now_s() };
        Ok(ConsoleKeyPage {
            frame: operator.frame(&row.name, ConsoleTab::Search),
            base_url: self.settings.base_url.clone(),
            card: key_card(&row, activity),
            account_id: account.id,
            email: account.email,
            usage: usage_view(usage.iter(), activity.used_today),
            restrictions: RestrictionsPanel {
                fields: RestrictionFields::saved(&row.restrictions, &context),
                has_tickets: self.settings.has_tickets,
                version: row.restriction_version,
                error: None,
            },
            limits: LimitFields::new(overrides),
            history: history.iter().map(history_entry).collect(),
        })
    }
}

fn parse_key_id(id: &str) -> Result<KeyId, ConsoleError> {
    KeyId::parse(id).ok_or(ConsoleError::NotFound)
}

fn redirect_after(id: &str, committed: &CommittedChange, notice: &'static str) -> Response {
    redirect_with_notice(&format!("/keys/{id}"), change_notice(committed, notice))
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<String>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    Ok(render_page(&console.load_key_page(&operator, &id).await?))
}

pub(super) async fn resume(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<String>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let service = console.stores_of(&operator.operator)?.key_service;
    Ok(redirect_after(&id, &service.resume(Actor::Operator, parse_key_id(&id)?).await?, "resumed"))
}

pub(super) async fn deactivate(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<String>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let service = console.stores_of(&operator.operator)?.key_service;
    Ok(redirect_after(&id, &service.deactivate(Actor::Operator, parse_key_id(&id)?).await?, "deactivated"))
}

pub(super) async fn reactivate(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<String>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let service = console.stores_of(&operator.operator)?.key_service;
    Ok(redirect_after(&id, &service.reactivate(Actor::Operator, parse_key_id(&id)?).await?, "reactivated"))
}

pub(super) async fn revoke_previous(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<String>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let service = console.stores_of(&operator.operator)?.key_service;
    Ok(redirect_after(&id, &service.revoke_previous(Actor::Operator, parse_key_id(&id)?).await?, "previous-revoked"))
}

pub(super) async fn restrict(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<String>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let mut fields = RestrictionFields::entered(&form);
    let saved = console.find_key(&id).await?.1.restrictions;
    let Some(restrictions) = fields.parse(time::now_s(), saved.expires_at_s) else {
        return rejected_page(&console, &operator, &id, fields, RestrictionsError::Invalid).await;
    };
    let version = form.field("version").parse().ok();
    let service = console.stores_of(&operator.operator)?.key_service;
    match service.restrict(Actor::Operator, parse_key_id(&id)?, &restrictions, version).await {
        Ok(committed) => Ok(redirect_after(&id, &committed, "restricted")),
        Err(StoreError::Refused(StoreRefusal::RestrictionsChanged)) => {
            rejected_page(&console, &operator, &id, fields, RestrictionsError::Changed).await
        }
        Err(StoreError::Refused(StoreRefusal::RestrictionsNotEnabled)) => {
            rejected_page(&console, &operator, &id, fields, RestrictionsError::NotEnabled).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The page of the key with what the operator entered, and why it is not saved.
async fn rejected_page(
    console: &Console,
    operator: &CurrentOperator,
    id: &str,
    fields: RestrictionFields,
    error: RestrictionsError,
) -> Result<Response, ConsoleError> {
    let mut page = console.load_key_page(operator, id).await?;
    page.restrictions = RestrictionsPanel { fields, error: Some(error), ..page.restrictions };
    Ok(render_page(&page))
}

pub(super) async fn set_limits(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<String>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let limits = parse_limits(&form)?;
    let stores = console.stores_of(&operator.operator)?;
    let change = stores.store.keys().set_limits(parse_key_id(&id)?, limits).await?;
    Ok(redirect_after(&id, &stores.key_service.publish(change).await, "limits"))
}
