//! The account page: email, password, sessions, deletion.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use http::header::SET_COOKIE;
use ipseity_domain::account::EmailAddress;
use ipseity_domain::{Client, KeyChange};
use ipseity_store::{DeviceSummary, SecurityEventRow, SessionSummary, StoreError, StoreRefusal, StoredPasskey};

use crate::auth::csrf_form::CsrfForm;
use crate::auth::password::Password;
use crate::auth::session_cookie::SessionCookie;
use crate::auth::signin::sign_out_response;
use crate::auth::signup::{EMAIL_TAKEN, INVALID_EMAIL};
use crate::error::PortalError;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::account::{AccountPage, DeleteAccountPage, DeviceItem, EventItem, PasskeyItem, SessionItem};
use crate::view::auth::EmailSentPage;
use crate::view::frame::Tab;

pub(crate) const WRONG_PASSWORD: &str = "Incorrect password.";
const WRONG_EMAIL: &str = "That isn’t the email address of your account. Nothing was deleted.";
/// Maximum number of security events on the page.
const EVENTS_MAX: i64 = 20;

/// The errors of the page's forms, and the new email as typed.
#[derive(Default)]
struct AccountFormErrors {
    email_input: String,
    email_error: Option<String>,
    password_error: Option<String>,
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    account_page(&portal, &member, AccountFormErrors::default()).await
}

async fn account_page(
    portal: &Portal,
    member: &CurrentMember,
    errors: AccountFormErrors,
) -> Result<Response, PortalError> {
    let account = &member.account;
    let session_item = |row: SessionSummary| SessionItem {
        id: row.id,
        label: row.label,
        signed_in_at: time::format_minute(row.created_s),
        last_seen_at: time::format_minute(row.last_seen_s),
        is_current: row.id == member.session_id,
    };
    let passkey_item =
        |row: StoredPasskey| PasskeyItem { id: row.id, name: row.name, created: time::format_date(row.created_s) };
    let sessions = portal.store.sessions().list(account.id, portal.settings.session_limits).await?;
    let devices = portal.store.devices().list(account.id).await?;
    let events = portal.store.security_log().list(account.id, EVENTS_MAX).await?;
    let passkeys = portal.store.passkeys().list(account.id).await?;
    let identities = portal.store.identities().list(account.id).await?;
    let tokens = portal.store.personal_tokens().list(account.id).await?;
    Ok(render_page(&AccountPage {
        frame: member.frame(portal, "Your account", Tab::Account),
        email: account.email.clone(),
        plan: account.plan.clone(),
        daily_limit: account.daily_limit,
        burst_limit: account.burst_limit as u64,
        email_enabled: portal.settings.email_enabled,
        sessions: sessions.into_iter().map(session_item).collect(),
        passkeys: passkeys.into_iter().map(passkey_item).collect(),
        passkeys_available: portal.webauthn.is_some(),
        linked_accounts: identities.len(),
        has_tokens: !tokens.is_empty(),
        providers_available: !portal.providers.names().is_empty(),
        needs_password: member.needs_password(),
        has_two_factor: member.has_two_factor,
        devices: devices.into_iter().map(device_item).collect(),
        events: events.iter().map(event_item).collect(),
        new_email: errors.email_input,
        email_error: errors.email_error,
        password_error: errors.password_error,
    }))
}

fn device_item(row: DeviceSummary) -> DeviceItem {
    DeviceItem { id: row.id, label: row.label, signed_in_at: time::format_date(row.signed_in_s) }
}

fn event_item(row: &SecurityEventRow) -> EventItem {
    let description = match row.kind.as_str() {
        "signed_in" => "Signed in",
        "new_device" => "First sign-in with a browser",
        "password" => "Password changed",
        "email" => "Email changed",
        "email_restored" => "Previous email restored",
        "passkey" => "Passkey added",
        "passkey_removed" => "Passkey removed",
        "identity_linked" => "Account of another provider linked",
        "identity_unlinked" => "Account of another provider unlinked",
        "two_factor_enabled" => "Two-factor authentication turned on",
        "two_factor_disabled" => "Two-factor authentication turned off",
        "recovery_codes" => "Recovery codes replaced",
        "recovery_code_used" => "Recovery code used",
        "key_created" => "Key created",
        "key_rotated" => "Key rotated",
        "key_deleted" => "Key deleted",
        "key_leaked" => "Key found in public and deactivated",
        "previous_secret_leaked" => "Previous secret of a key found in public and revoked",
        "alert_channel" => "Alert channel added or changed",
        "alert_channel_off" => "Alert channel turned off",
        "token_created" => "Personal token created",
        "token_revoked" => "Personal token revoked",
        "token_resume" => "Changed whether personal tokens can resume keys",
        other => other,
    };
    let key = row.key_id.as_ref().map(|id| format!("ips_{id}"));
    EventItem { at: time::format_minute(row.at_s), description: description.to_owned(), key }
}

impl Portal {
    /// Counts a change that sends an email, if the account may make another.
    pub(crate) fn record_account_change(&self, member: &CurrentMember) -> Result<(), PortalError> {
        self.account_change_throttle.record_attempt(member.account.id).map_err(PortalError::AccountChangesThrottled)
    }
}

pub(crate) async fn change_email(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let email_input = form.field("email");
    let with_error = |message: &str| AccountFormErrors {
        email_input: email_input.to_owned(),
        email_error: Some(message.to_owned()),
        ..AccountFormErrors::default()
    };
    let Some(email) = EmailAddress::parse(email_input) else {
        return account_page(&portal, &member, with_error(INVALID_EMAIL)).await;
    };
    if !portal.confirm_member(&member, form.field("password"), "/account").await? {
        return account_page(&portal, &member, with_error(WRONG_PASSWORD)).await;
    }
    portal.record_account_change(&member)?;
    if portal.settings.email_enabled {
        portal.email_limits.record_for_subnet(client.address.subnet())?;
        portal.email_requests().request_email_change(member.account.id, &email).await?;
        let frame = member.frame(&portal, "Check your email", Tab::Account);
        let message = "Open the link in the email to change your address.";
        return Ok(render_page(&EmailSentPage { frame, email: email.to_string(), message, retry_href: "/account" }));
    }
    match portal.store.accounts().set_email(member.account.id, member.session_id, &email).await {
        Ok(()) => Ok(redirect_with_notice("/account", "email")),
        Err(StoreError::Refused(StoreRefusal::AccountExists)) => {
            account_page(&portal, &member, with_error(EMAIL_TAKEN)).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn change_password(
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let with_error =
        |message: &str| AccountFormErrors { password_error: Some(message.to_owned()), ..AccountFormErrors::default() };
    let password = match Password::parse_new(form.field("password"), &member.account.email) {
        Ok(password) => password,
        Err(message) => return account_page(&portal, &member, with_error(message)).await,
    };
    if !portal.confirm_member(&member, form.field("current"), "/account").await? {
        return account_page(&portal, &member, with_error(WRONG_PASSWORD)).await;
    }
    let hash = portal.password_pool.hash(member.password_requester(), password).await?;
    let (account_id, delete_credentials) = (member.account.id, form.is_checked("delete_credentials"));
    let session_cookie = SessionCookie::generate();
    let accounts = portal.store.accounts();
    accounts.set_password(account_id, &hash, member.session_id, &session_cookie.digest(), delete_credentials).await?;
    portal.secret_lookups.remember(session_cookie.digest());
    let mut response = redirect_with_notice("/account", "password");
    response.headers_mut().append(SET_COOKIE, session_cookie.to_set_cookie(portal.session_idle_timeout_s()));
    portal.remember_device(account_id, &headers, &mut response).await?;
    Ok(response)
}

pub(crate) async fn end_session(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let id = id.parse().map_err(|_| PortalError::NotFound)?;
    if !portal.store.sessions().end(member.account.id, id).await? {
        return Err(PortalError::NotFound);
    }
    Ok(if id == member.session_id {
        sign_out_response(&portal, "signed-out")
    } else {
        redirect_with_notice("/account", "session")
    })
}

pub(crate) async fn forget_device(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let id = id.parse().map_err(|_| PortalError::NotFound)?;
    match portal.store.devices().forget(member.account.id, id).await? {
        true => Ok(redirect_with_notice("/account", "device")),
        false => Err(PortalError::NotFound),
    }
}

pub(crate) async fn end_other_sessions(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    portal.store.sessions().end_others(member.account.id, member.session_id).await?;
    Ok(redirect_with_notice("/account", "sessions"))
}

pub(crate) async fn delete_form(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    delete_page(&portal, &member, None).await
}

async fn delete_page(
    portal: &Portal,
    member: &CurrentMember,
    form_error: Option<&str>,
) -> Result<Response, PortalError> {
    let key_count = portal.store.keys().list(member.account.id).await?.len();
    let frame = member.frame(portal, "Delete your account", Tab::Account);
    let (needs_password, form_error) = (member.needs_password(), form_error.map(str::to_owned));
    let email = member.account.email.clone();
    Ok(render_page(&DeleteAccountPage { frame, email, key_count, needs_password, form_error }))
}

pub(crate) async fn delete(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.confirm_member(&member, form.field("password"), "/account/delete").await? {
        return delete_page(&portal, &member, Some(WRONG_PASSWORD)).await;
    }
    if !form.field("email").trim().eq_ignore_ascii_case(&member.account.email) {
        return delete_page(&portal, &member, Some(WRONG_EMAIL)).await;
    }
    for id in portal.store.accounts().delete(member.account.id, Some(member.session_id)).await? {
        let _ = portal.key_service.publish(KeyChange::Deleted(id)).await;
    }
    Ok(sign_out_response(&portal, "account-deleted"))
}
