//! The single-use link with which an operator adds the first way to sign in.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use ipseity_store::{NewCredential, OperatorLink, OperatorName, Redemption};
use serde::{Deserialize, Serialize};
use url::Url;
use uuid::Uuid;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::passkeys::json_response;
use crate::auth::session_cookie::SecretToken;
use crate::auth::webauthn::{NewPasskey, PasskeyUser, RegistrationResponse, RegistrationState};
use crate::console::error::ConsoleError;
use crate::console::operator::ConsoleVisitor;
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::pages::JoinPage;

const INVALID_NAME: &str = "Enter a name of 1 to 64 letters, digits, dots, hyphens, underscores or @.";

/// The state of a registration by a link.
#[derive(Serialize, Deserialize)]
struct JoinState {
    registration: RegistrationState,
    /// The name of the first operator, and its WebAuthn user handle.
    first: Option<(String, [u8; 16])>,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    PathPart(token): PathPart<String>,
    visitor: ConsoleVisitor,
) -> Result<Response, ConsoleError> {
    let (_, link) = console.find_link(&token).await?;
    let page = JoinPage {
        frame: visitor.frame("Set up your sign-in", ConsoleTab::None),
        token,
        operator: link.operator,
        passkeys_available: console.webauthn.is_some(),
        providers: console.providers.names(),
    };
    Ok(visitor.render(&console, &page))
}

pub(super) async fn begin_passkey(
    State(console): State<Arc<Console>>,
    PathPart(token): PathPart<String>,
    visitor: ConsoleVisitor,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.sign_in_throttle.record_attempt(())?;
    let (_, link) = console.find_link(&token).await?;
    let (name, handle, first) = match link.operator {
        Some(operator) => (operator.name, operator.handle, None),
        None => {
            let name = parse_name(form.field("name"))?.as_str().to_owned();
            let handle = generate_handle();
            (name.clone(), handle, Some((name, *handle.as_bytes())))
        }
    };
    let user = PasskeyUser { handle: handle.as_bytes(), name: &name };
    let (options, registration) = console.relying_party()?.begin_registration(&user, &[]);
    let state = serde_json::to_value(JoinState { registration, first })?;
    console.store.webauthn_states().save(&visitor.session_cookie.digest(), &state).await?;
    Ok(json_response(&options))
}

pub(super) async fn finish_passkey(
    State(console): State<Arc<Console>>,
    PathPart(token): PathPart<String>,
    headers: HeaderMap,
    visitor: ConsoleVisitor,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let (digest, _) = console.find_link(&token).await?;
    let JoinState { registration, first } = console.take_state(&visitor.session_cookie).await?;
    let response: RegistrationResponse = serde_json::from_str(form.field("credential"))?;
    let NewPasskey { credential_id, record } = console.relying_party()?.finish_registration(registration, &response)?;
    let first = match first {
        Some((name, handle)) => Some((parse_name(&name)?, Uuid::from_bytes(handle))),
        None => None,
    };
    let passkey = record.to_json(&credential_id);
    let redemption = Redemption {
        digest: &digest,
        first: first.as_ref().map(|(name, handle)| (name, *handle)),
        credential: NewCredential::Passkey { id: &credential_id, name: "Passkey", passkey: &passkey },
    };
    let operator_id = console.store.operators().redeem_link(redemption).await?;
    console.sign_in_throttle.reset(&());
    console.open_session(operator_id, &headers).await
}

pub(super) fn parse_name(text: &str) -> Result<OperatorName, ConsoleError> {
    OperatorName::parse(text.trim()).ok_or_else(|| ConsoleError::Rejected(INVALID_NAME.to_owned()))
}

pub(super) fn generate_handle() -> Uuid {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    Uuid::from_bytes(bytes)
}

impl Console {
    pub(super) async fn find_link(&self, token: &str) -> Result<([u8; 32], OperatorLink), ConsoleError> {
        let digest = SecretToken::parse(token).ok_or(ConsoleError::LinkExpired)?.digest();
        let link = self.store.operators().find_link(&digest).await?.ok_or(ConsoleError::LinkExpired)?;
        Ok((digest, link))
    }
}

/// Creates a link for an operator of the console at this URL. Returns it and the digest to save.
#[must_use]
pub fn generate_operator_link(console_url: &Url) -> (String, [u8; 32]) {
    let token = SecretToken::generate();
    let mut url = console_url.clone();
    url.set_path(&format!("/join/{}", token.expose()));
    (url.into(), token.digest())
}
