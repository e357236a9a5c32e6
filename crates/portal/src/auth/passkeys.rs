//! Passkeys: sign in without a password or an email address.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use ipseity_domain::Client;
use ipseity_store::{FoundPasskey, StoreError, StoreRefusal};
use serde_json::Value;
use webauthn_rs::Webauthn;
use webauthn_rs::prelude::{
    DiscoverableAuthentication, DiscoverableKey, Passkey, PasskeyRegistration, PublicKeyCredential,
    RegisterPublicKeyCredential, WebauthnError,
};

use crate::auth::csrf_form::CsrfForm;
use crate::auth::session_cookie::SessionCookie;
use crate::error::PortalError;
use crate::page::{CurrentMember, Visitor, redirect_with_notice};
use crate::state::Portal;

const PASSKEY_NAME_CHARS_MAX: usize = 60;

impl Portal {
    fn webauthn(&self) -> Result<&Webauthn, PortalError> {
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

fn json_response(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

pub(crate) async fn begin_registration(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.confirm_member(&member, form.field("password")).await? {
        return Err(PortalError::WrongPassword);
    }
    portal.record_account_change(&member)?;
    let account = &member.account;
    let handle = portal.store.passkeys().user_handle(account.id).await?;
    let rows = portal.store.passkeys().list(account.id).await?;
    let existing =
        rows.into_iter().map(|row| serde_json::from_value::<Passkey>(row.passkey).map(|key| key.cred_id().clone()));
    let existing = existing.collect::<Result<Vec<_>, _>>()?;
    let (challenge, state) =
        portal.webauthn()?.start_passkey_registration(handle, &account.email, &account.email, Some(existing))?;
    portal.store.webauthn_states().save(&member.session_cookie().digest(), &serde_json::to_value(state)?).await?;
    let mut challenge = serde_json::to_value(challenge)?;
    // The library does not request a resident key. Without one, the browser cannot offer the passkey before the account is known.
    challenge["publicKey"]["authenticatorSelection"]["residentKey"] = "required".into();
    challenge["publicKey"]["authenticatorSelection"]["requireResidentKey"] = true.into();
    Ok(json_response(&challenge))
}

pub(crate) async fn finish_registration(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let credential: RegisterPublicKeyCredential = serde_json::from_str(form.field("credential"))?;
    let state: PasskeyRegistration = portal.take_webauthn_state(&member.session_cookie().digest()).await?;
    let passkey = portal.webauthn()?.finish_passkey_registration(&credential, &state)?;
    let name: String =
        form.field("name").trim().chars().filter(|c| !c.is_control()).take(PASSKEY_NAME_CHARS_MAX).collect();
    let name = if name.is_empty() { "Passkey" } else { &name };
    let stored_passkey = serde_json::to_value(&passkey)?;
    let (account_id, session_id) = (member.account.id, member.session_id);
    match portal.store.passkeys().add(account_id, session_id, passkey.cred_id().as_ref(), name, &stored_passkey).await {
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
    match portal.store.passkeys().delete(member.account.id, id).await? {
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
    let account_id = portal.verify_passkey(&visitor.session_cookie.digest(), &form).await?;
    portal.subnet_throttle.give_back(&subnet);
    portal.open_session(account_id, &headers).await
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
    portal.store.sessions().confirm(member.session_id).await?;
    Ok(redirect_with_notice("/account", "confirmed"))
}

impl Portal {
    async fn begin_authentication(&self, session_cookie: &SessionCookie) -> Result<Response, PortalError> {
        let (challenge, state) = self.webauthn()?.start_discoverable_authentication()?;
        self.store.webauthn_states().save(&session_cookie.digest(), &serde_json::to_value(state)?).await?;
        Ok(json_response(&serde_json::to_value(challenge)?))
    }

    /// Verifies the passkey that a form contains, and returns its account.
    async fn verify_passkey(&self, session_digest: &[u8; 32], form: &CsrfForm) -> Result<i64, PortalError> {
        let credential: PublicKeyCredential = serde_json::from_str(form.field("credential"))?;
        let state: DiscoverableAuthentication = self.take_webauthn_state(session_digest).await?;
        let id = credential.get_credential_id().to_vec();
        let FoundPasskey { account_id, user_handle, passkey } =
            self.store.passkeys().find(&id).await?.ok_or(PortalError::PasskeyRefused)?;
        // The library does not compare it (WebAuthn, section 7.2, step 6).
        if credential.get_user_unique_id().is_some_and(|handle| handle != user_handle.as_bytes()) {
            return Err(PortalError::PasskeyRefused);
        }
        let mut passkey: Passkey = serde_json::from_value(passkey)?;
        let key = DiscoverableKey::from(&passkey);
        let outcome = self.webauthn()?.finish_discoverable_authentication_v2(&credential, state, &key)?;
        if passkey.update_credential(&outcome) == Some(true) {
            self.store.passkeys().update(&id, &serde_json::to_value(&passkey)?).await?;
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
