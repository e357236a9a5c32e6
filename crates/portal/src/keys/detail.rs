//! The page of one key, and the actions of its owner.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use ipseity_domain::account::KeyName;
use ipseity_domain::restrictions::warning::RestrictionContext;
use ipseity_domain::{KeyChange, KeyId, KeyState, PlaintextKey};
use ipseity_keys::CommittedChange;
use ipseity_store::{HistoryRow, KeySummary, StoreError, StoreRefusal};

use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::keys::code_tabs::code_tabs;
use crate::keys::list::{key_card, load_activity};
use crate::keys::new_key::{INVALID_KEY_NAME, random_byte};
use crate::keys::single_use::form_token;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::{Portal, change_notice};
use crate::time;
use crate::view::frame::Tab;
use crate::view::keys::{DeleteKeyPage, FirstRequest, KeyHistoryRow, KeyPage, RotateNowPage};
use crate::view::restrictions::{RestrictionFields, RestrictionsPanel};

/// Number of history rows on the page.
const HISTORY_ROWS_MAX: usize = 50;
/// How long the previous secret stays valid after a rotation: not at all, an hour, a day, a week.
const OVERLAPS_S: [u32; 4] = [0, 3600, 86_400, 604_800];

type KeyIdPath = Path<String>;

impl Portal {
    /// Finds a key of the member.
    pub(super) async fn find_own_key(&self, member: &CurrentMember, id: &str) -> Result<KeySummary, PortalError> {
        let id = parse_key_id(id)?;
        self.store.keys().find(member.account.id, id).await?.ok_or(PortalError::NotFound)
    }

    /// A part of a key's history, newest first, and the id before which the next part starts.
    async fn load_history(
        &self,
        member: &CurrentMember,
        id: KeyId,
        before: Option<i64>,
    ) -> Result<(Vec<KeyHistoryRow>, Option<i64>), PortalError> {
        let rows_max = i64::try_from(HISTORY_ROWS_MAX).unwrap_or(i64::MAX);
        let rows = self.store.audit_log().list_for_key(member.account.id, id, before, rows_max).await?;
        let oldest = rows.get(HISTORY_ROWS_MAX - 1).map(|row| row.id);
        Ok((rows.iter().map(history_entry).collect(), oldest))
    }

    /// Counts a key action, if the account may make another. Each adds rows that are kept for a long time.
    pub(crate) fn record_key_action(&self, member: &CurrentMember) -> Result<(), PortalError> {
        self.key_action_throttle.record_attempt(member.account.id).map_err(PortalError::KeyActionsThrottled)
    }
}

pub(super) fn parse_key_id(id: &str) -> Result<KeyId, PortalError> {
    KeyId::parse(id).ok_or(PortalError::NotFound)
}

pub(crate) async fn show(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    RawQuery(query): RawQuery,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let mut page = load_key_page(&portal, &member, &id).await?;
    if let Some(before) = query.as_deref().and_then(|query| query.strip_prefix("before=")?.parse().ok()) {
        page.history_before = Some(before);
        (page.history, page.older_history) = portal.load_history(&member, parse_key_id(&id)?, Some(before)).await?;
    }
    Ok(render_page(&page))
}

async fn key_page(
    portal: &Portal,
    member: &CurrentMember,
    id: &str,
    form_error: Option<&str>,
) -> Result<Response, PortalError> {
    let mut page = load_key_page(portal, member, id).await?;
    page.form_error = form_error.map(str::to_owned);
    Ok(render_page(&page))
}

/// The page of a key as it is saved.
pub(super) async fn load_key_page(portal: &Portal, member: &CurrentMember, id: &str) -> Result<KeyPage, PortalError> {
    let row = portal.find_own_key(member, id).await?;
    let activity = load_activity(&portal.ledger, &row).await;
    let (history, older_history) = portal.load_history(member, row.id, None).await?;
    let usage = portal.key_usage_view(member, row.id, activity.used_today).await?;
    let context = RestrictionContext {
        daily_limit: row.daily_limit,
        burst_limit: row.burst_limit,
        nodes: portal.store.deployment().node_count().await?,
        now_s: time::now_s(),
    };
    let fields = RestrictionFields::saved(&row.restrictions, &context);
    let card = key_card(&row, activity);
    let age_s = i64::try_from(time::now_s()).unwrap_or(i64::MAX) - row.created_s;
    let first_request = FirstRequest::of(card.last_used.is_some(), age_s);
    // The page does not know the secret.
    let code = || code_tabs(&portal.settings.base_url, &format!("ips_{}…", row.id), &row.restrictions);
    Ok(KeyPage {
        frame: member.frame(portal, &row.name, Tab::Keys),
        form_token: form_token(),
        first_request,
        code: (first_request == FirstRequest::Waiting).then(code),
        card,
        usage,
        restrictions: RestrictionsPanel {
            fields,
            has_tickets: portal.public_pages.host.has_tickets(),
            version: row.restriction_version,
            error: None,
        },
        history,
        history_before: None,
        older_history,
        form_error: None,
    })
}

pub(crate) fn history_entry(row: &HistoryRow) -> KeyHistoryRow {
    let description = match row.action.as_str() {
        "issued" => "Created",
        "renamed" => "Renamed",
        "deactivated" => "Deactivated",
        "reactivated" => "Reactivated",
        "paused" => "Paused: more requests in 60 seconds than the burst limit",
        "resumed" => "Resumed",
        "rolled" => "Rotated",
        "retired" => "Old secret revoked",
        "restricted" => "Restrictions changed",
        "limits_changed" => "Limits changed",
        "invalidated" => "Tickets invalidated",
        other => other,
    };
    KeyHistoryRow {
        at: time::format_minute(row.at_s),
        description: description.to_owned(),
        actor: actor_name(&row.actor),
        burst_epoch: row.burst_epoch,
    }
}

/// The actor of an event, for the owner of the key.
pub(super) fn actor_name(actor: &str) -> &'static str {
    match actor {
        "owner" => "you",
        "operator" => "an administrator",
        _ => "Ipseity",
    }
}

pub(crate) async fn rename(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let Some(name) = KeyName::parse(form.field("name")) else {
        return key_page(&portal, &member, &id, Some(INVALID_KEY_NAME)).await;
    };
    portal.record_key_action(&member)?;
    portal.store.keys().rename(member.actor(), parse_key_id(&id)?, &name).await?;
    Ok(redirect_with_notice(&format!("/keys/{id}"), "renamed"))
}

/// Redirects to the page of a changed key.
pub(super) fn redirect_after(id: &str, committed: &CommittedChange, notice: &'static str) -> Response {
    redirect_with_notice(&format!("/keys/{id}"), change_notice(committed, notice))
}

/// Not throttled, like every revocation.
pub(crate) async fn deactivate(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let committed = portal.key_service.deactivate(member.actor(), parse_key_id(&id)?).await?;
    Ok(redirect_after(&id, &committed, "deactivated"))
}

pub(crate) async fn reactivate(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    member.require_recent(&format!("/keys/{}", parse_key_id(&id)?))?;
    portal.record_key_action(&member)?;
    let committed = portal.key_service.reactivate(member.actor(), parse_key_id(&id)?).await?;
    let is_paused = matches!(&committed.change, KeyChange::Updated(record) if record.flags.state() == KeyState::Paused);
    Ok(redirect_after(&id, &committed, if is_paused { "still-paused" } else { "reactivated" }))
}

pub(crate) async fn resume(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    portal.record_key_action(&member)?;
    match portal.key_service.resume(member.actor(), parse_key_id(&id)?).await {
        Ok(committed) => Ok(redirect_after(&id, &committed, "resumed")),
        Err(StoreError::Refused(StoreRefusal::ResumedRecently { retry_after_s })) => {
            let unit = if retry_after_s == 1 { "second" } else { "seconds" };
            let message = format!("You can resume a key once a minute. Try again in {retry_after_s} {unit}.");
            key_page(&portal, &member, &id, Some(&message)).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Not throttled, like every revocation.
pub(crate) async fn revoke_previous(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let committed = portal.key_service.revoke_previous(member.actor(), parse_key_id(&id)?).await?;
    Ok(redirect_after(&id, &committed, "previous-revoked"))
}

pub(crate) async fn rotate(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let overlap_s = form.field("overlap_s").parse().ok().filter(|overlap_s| OVERLAPS_S.contains(overlap_s));
    let Some(overlap_s) = overlap_s else {
        return key_page(&portal, &member, &id, Some("Choose when the old secret expires.")).await;
    };
    member.require_recent(&format!("/keys/{}", parse_key_id(&id)?))?;
    if overlap_s == 0 && form.field("confirmed") != "yes" {
        let KeySummary { id, name, .. } = portal.find_own_key(&member, &id).await?;
        let frame = member.frame(&portal, "Rotate key", Tab::Keys);
        return Ok(render_page(&RotateNowPage { frame, id: id.to_string(), name, form_token: form_token() }));
    }
    portal.record_key_action(&member)?;
    if !portal.use_form_once(&member, &form).await? {
        return Ok(redirect_with_notice(&format!("/keys/{}", parse_key_id(&id)?), "rotated-before"));
    }
    let plaintext = PlaintextKey::rotate(parse_key_id(&id)?, random_byte);
    let _ = portal.key_service.rotate(member.actor(), &plaintext.to_api_key(), overlap_s).await?;
    let row = portal.find_own_key(&member, &id).await?;
    let frame = member.frame(&portal, "Key rotated", Tab::Keys);
    let rotated = Some(row.previous_until_s.map(time::format_minute));
    Ok(render_page(&portal.new_secret_page(frame, &plaintext, &row.name, &row.restrictions, rotated)))
}

pub(crate) async fn delete_form(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let row = portal.find_own_key(&member, &id).await?;
    member.require_recent(&format!("/keys/{}/delete", row.id))?;
    Ok(delete_page(&portal, &member, row, None))
}

fn delete_page(portal: &Portal, member: &CurrentMember, row: KeySummary, form_error: Option<String>) -> Response {
    let frame = member.frame(portal, "Delete key", Tab::Keys);
    render_page(&DeleteKeyPage { frame, id: row.id.to_string(), name: row.name, form_error })
}

/// Whether the typed text names the key: by its name, as the page shows it, or by its ID, which is easier to type than some names.
fn names_key(typed: &str, row: &KeySummary) -> bool {
    let shown = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let id = row.id.as_str();
    let typed_id = typed.trim().strip_prefix("ips_").unwrap_or(typed.trim());
    typed_id == id || (!row.name.trim().is_empty() && shown(typed) == shown(&row.name))
}

/// Not throttled, like every revocation. The member types the key's name, so that no other key is deleted by mistake.
pub(crate) async fn delete(
    State(portal): State<Arc<Portal>>,
    Path(id): KeyIdPath,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    member.require_recent(&format!("/keys/{}/delete", parse_key_id(&id)?))?;
    let row = portal.find_own_key(&member, &id).await?;
    if !names_key(form.field("typed"), &row) {
        let message =
            format!("That isn’t the name of this key. Nothing was deleted. Type “{}” to delete it.", row.name);
        return Ok(delete_page(&portal, &member, row, Some(message)));
    }
    let committed = portal.key_service.delete(member.actor(), parse_key_id(&id)?).await?;
    Ok(redirect_with_notice("/keys", change_notice(&committed, "deleted")))
}
