//! Passkeys: a second way to sign in, without a password and without naming an account.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use domain::Client;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use store::{Refused, StoreError};
use url::Url;
use webauthn_rs::Webauthn;
use webauthn_rs::prelude::{
    DiscoverableAuthentication, DiscoverableKey, Passkey, PasskeyRegistration, PublicKeyCredential,
    RegisterPublicKeyCredential, WebauthnBuilder, WebauthnError,
};

use crate::Portal;
use crate::page::{Member, Visitor, done};
use crate::posted::Posted;
use crate::problem::Problem;

const NAME_CHARS_MAX: usize = 60;

/// Passkeys are bound to a name: a service that is reached by a bare address has none.
pub(crate) fn open(base_url: &str) -> Option<Webauthn> {
    let origin = Url::parse(base_url).ok()?;
    WebauthnBuilder::new(origin.domain()?, &origin).ok()?.rp_name("Ipseity").build().ok()
}

impl Portal {
    fn webauthn(&self) -> Result<&Webauthn, Problem> {
        self.passkeys.as_ref().ok_or(Problem::NotFound)
    }
}

/// A ceremony that failed is the browser's to tell; nothing of it is worth a log line.
impl From<WebauthnError> for Problem {
    fn from(_: WebauthnError) -> Self {
        Self::PasskeyRefused
    }
}

impl From<serde_json::Error> for Problem {
    fn from(_: serde_json::Error) -> Self {
        Self::PasskeyRefused
    }
}

fn json(value: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

pub(crate) async fn begin_registration(
    State(portal): State<Arc<Portal>>,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let account = &member.account;
    let handle = portal.store.account_handle(account.id).await?;
    let rows = portal.store.passkeys(account.id).await?;
    let known =
        rows.into_iter().map(|row| serde_json::from_value::<Passkey>(row.passkey).map(|key| key.cred_id().clone()));
    let known = known.collect::<Result<Vec<_>, _>>()?;
    let (challenge, state) =
        portal.webauthn()?.start_passkey_registration(handle, &account.email, &account.email, Some(known))?;
    portal.store.keep_ceremony(&member.visit().digest(), &serde_json::to_value(state)?).await?;
    let mut challenge = serde_json::to_value(challenge)?;
    // The library asks for none; without one the browser could not tell at the door whose passkey it is.
    challenge["publicKey"]["authenticatorSelection"]["residentKey"] = "required".into();
    challenge["publicKey"]["authenticatorSelection"]["requireResidentKey"] = true.into();
    Ok(json(&challenge))
}

pub(crate) async fn finish_registration(
    State(portal): State<Arc<Portal>>,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    let credential: RegisterPublicKeyCredential = serde_json::from_str(posted.text("credential"))?;
    let state: PasskeyRegistration = portal.ceremony(&member.visit().digest()).await?;
    let passkey = portal.webauthn()?.finish_passkey_registration(&credential, &state)?;
    let name: String = posted.text("name").trim().chars().filter(|c| !c.is_control()).take(NAME_CHARS_MAX).collect();
    let name = if name.is_empty() { "Passkey" } else { &name };
    let kept = serde_json::to_value(&passkey)?;
    match portal.store.add_passkey(member.account.id, passkey.cred_id().as_ref(), name, &kept).await {
        Ok(()) => Ok(done("/account", "passkey")),
        Err(StoreError::Refused(Refused::PasskeysSpent)) => Err(Problem::PasskeysSpent),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn delete(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let id = id.parse().map_err(|_| Problem::NotFound)?;
    match portal.store.delete_passkey(member.account.id, id).await? {
        true => Ok(done("/account", "passkey-deleted")),
        false => Err(Problem::NotFound),
    }
}

pub(crate) async fn begin_sign_in(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    visitor: Visitor,
    _: Posted,
) -> Result<Response, Problem> {
    portal.by_network.spend(client.address.neighbourhood())?;
    let (challenge, state) = portal.webauthn()?.start_discoverable_authentication()?;
    portal.store.keep_ceremony(&visitor.visit.digest(), &serde_json::to_value(state)?).await?;
    Ok(json(&serde_json::to_value(challenge)?))
}

pub(crate) async fn finish_sign_in(
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    visitor: Visitor,
    posted: Posted,
) -> Result<Response, Problem> {
    let credential: PublicKeyCredential = serde_json::from_str(posted.text("credential"))?;
    let state: DiscoverableAuthentication = portal.ceremony(&visitor.visit.digest()).await?;
    let id = credential.get_credential_id().to_vec();
    let (account_id, kept) = portal.store.find_passkey(&id).await?.ok_or(Problem::PasskeyRefused)?;
    let mut passkey: Passkey = serde_json::from_value(kept)?;
    let key = DiscoverableKey::from(&passkey);
    let outcome = portal.webauthn()?.finish_discoverable_authentication_v2(&credential, state, &key)?;
    if passkey.update_credential(&outcome) == Some(true) {
        portal.store.update_passkey(&id, &serde_json::to_value(&passkey)?).await?;
    }
    portal.enter(account_id, &headers).await
}

impl Portal {
    /// What was kept when a ceremony began; each can be ended once, by the browser that began it.
    async fn ceremony<T: serde::de::DeserializeOwned>(&self, visit: &[u8; 32]) -> Result<T, Problem> {
        let kept = self.store.take_ceremony(visit).await?.ok_or(Problem::PasskeyRefused)?;
        Ok(serde_json::from_value(kept)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passkeys_need_a_name_and_tls_or_localhost() {
        assert!(open("https://ipseity.example").is_some() && open("https://localhost:8443").is_some());
        for odd in ["https://192.0.2.1", "https://[2001:db8::1]", "nonsense", ""] {
            assert!(open(odd).is_none(), "{odd}");
        }
    }
}
