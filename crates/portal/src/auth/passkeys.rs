//! Passkeys: sign in without a password or an email address.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use ipseity_domain::Client;
use ipseity_store::{FoundPasskey, SessionStart, StoreError, StoreRefusal};
use serde_json::Value;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::next_path::NextPath;
use crate::auth::session_cookie::SessionCookie;
use crate::auth::sign_in_counts::SignInOutcome;
use crate::auth::webauthn::{
    AuthenticationResponse, AuthenticationState, KnownPasskey, NewPasskey, PasskeyRecord, PasskeyUser,
    RegistrationResponse, RegistrationState, RelyingParty, WebauthnError,
};
use crate::error::PortalError;
use crate::page::{CurrentMember, Visitor, redirect_with_notice};
use crate::state::Portal;

const PASSKEY_NAME_CHARS_MAX: usize = 60;

impl Portal {
    fn relying_party(&self) -> Result<&RelyingParty, PortalError> {
        self.webauthn.as_ref().ok_or(PortalError::NotFound)
    }
}

/// Failed verifications are expected and not logged.
impl From<WebauthnError> for PortalError {
    fn from(_: WebauthnError) -> Self {
        Self::PasskeyRefused
    }
}

impl From<serde_json::Error> for PortalError {
    fn from(_: serde_json::Error) -> Self {
        Self::PasskeyRefused
    }
}

pub(crate) fn json_response(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

pub(crate) async fn begin_registration(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.confirm_member(&member, form.field("password"), "/account").await? {
        return Err(PortalError::WrongPassword);
    }
    portal.record_account_change(&member)?;
    let account = &member.account;
    let handle = portal.store.passkeys().user_handle(account.id).await?;
    let rows = portal.store.passkeys().list(account.id).await?;
    let existing: Vec<_> = rows.into_iter().map(|row| row.credential_id).collect();
    let user = PasskeyUser { handle: handle.as_bytes(), name: &account.email };
    let (options, state) = portal.relying_party()?.begin_registration(&user, &existing);
    portal.store.webauthn_states().save(&member.session_cookie().digest(), &serde_json::to_value(state)?).await?;
    Ok(json_response(&options))
}

/// The name that a form gives a new passkey.
pub(crate) fn passkey_name(form: &CsrfForm) -> String {
    let name: String =
        form.field("name").trim().chars().filter(|c| !c.is_control()).take(PASSKEY_NAME_CHARS_MAX).collect();
    if name.is_empty() { "Passkey".to_owned() } else { name }
}

pub(crate) async fn finish_registration(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    member.require_second_factor("/account")?;
    let response: RegistrationResponse = serde_json::from_str(form.field("credential"))?;
    let state: RegistrationState = portal.take_webauthn_state(&member.session_cookie().digest()).await?;
    let NewPasskey { credential_id, record } = portal.relying_party()?.finish_registration(state, &response)?;
    let name = passkey_name(&form);
    let stored_passkey = record.to_json(&credential_id);
    let (account_id, session_id) = (member.account.id, member.session_id);
    match portal.store.passkeys().add(account_id, session_id, &credential_id, &name, &stored_passkey).await {
        Ok(()) => Ok(redirect_with_notice("/account", "passkey")),
        Err(StoreError::Refused(StoreRefusal::PasskeyLimitReached)) => Err(PortalError::PasskeyLimitReached),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn delete(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let id = id.parse().map_err(|_| PortalError::NotFound)?;
    member.require_recent("/account")?;
    match portal.store.passkeys().delete(member.account.id, member.session_id, id).await? {
        true => Ok(redirect_with_notice("/account", "passkey-deleted")),
        false => Err(PortalError::NotFound),
    }
}

pub(crate) async fn begin_sign_in(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    visitor: Visitor,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    portal.subnet_throttle.record_attempt(client.address.subnet())?;
    portal.begin_authentication(&visitor.session_cookie).await
}

pub(crate) async fn finish_sign_in(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let subnet = client.address.subnet();
    portal.subnet_throttle.record_attempt(subnet)?;
    let verified = portal.verify_passkey(&visitor.session_cookie.digest(), &form).await;
    let account_id = verified.inspect_err(|_| portal.sign_in_counts.inc(SignInOutcome::PasskeyRejected))?;
    portal.subnet_throttle.give_back(&subnet);
    // A passkey with user verification is two factors.
    portal.open_session(account_id, &headers, SessionStart::SignIn, &NextPath::parse(form.field("next"))).await
}

pub(crate) async fn begin_confirmation(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    portal.begin_authentication(member.session_cookie()).await
}

pub(crate) async fn finish_confirmation(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if portal.verify_passkey(&member.session_cookie().digest(), &form).await? != member.account.id {
        return Err(PortalError::PasskeyRefused);
    }
    portal.finish_confirmation(&member, &NextPath::parse(form.field("next"))).await
}

impl Portal {
    async fn begin_authentication(&self, session_cookie: &SessionCookie) -> Result<Response, PortalError> {
        let (options, state) = self.relying_party()?.begin_authentication();
        self.store.webauthn_states().save(&session_cookie.digest(), &serde_json::to_value(state)?).await?;
        Ok(json_response(&options))
    }

    /// Verifies the passkey that a form contains, and returns its account.
    async fn verify_passkey(&self, session_digest: &[u8; 32], form: &CsrfForm) -> Result<i64, PortalError> {
        let response: AuthenticationResponse = serde_json::from_str(form.field("credential"))?;
        let state: AuthenticationState = self.take_webauthn_state(session_digest).await?;
        let credential_id = response.credential_id();
        let FoundPasskey { account_id, user_handle, passkey } =
            self.store.passkeys().find(credential_id).await?.ok_or(PortalError::PasskeyRefused)?;
        let record = PasskeyRecord::from_json(&passkey)?;
        let passkey = KnownPasskey { credential_id, user_handle: user_handle.as_bytes(), record: &record };
        if let Some(used) = self.relying_party()?.finish_authentication(state, &response, &passkey)? {
            self.store.passkeys().update(credential_id, &used.to_json(credential_id)).await?;
        }
        Ok(account_id)
    }

    /// Takes the state that was saved when the ceremony began. It can be used once, by the same browser.
    async fn take_webauthn_state<T: serde::de::DeserializeOwned>(
        &self,
        session_digest: &[u8; 32],
    ) -> Result<T, PortalError> {
        let state = self.store.webauthn_states().take(session_digest).await?.ok_or(PortalError::PasskeyRefused)?;
        Ok(serde_json::from_value(state)?)
    }
}
