//! The operator's own ways to sign in, and sessions.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_store::NewCredential;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::passkeys::{json_response, passkey_name};
use crate::auth::webauthn::{NewPasskey, PasskeyUser, RegistrationResponse, RegistrationState};
use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::pages::{CredentialItem, ProfilePage};
use crate::page::{redirect_with_notice, render_page};
use crate::time;

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let credentials = console.store.operators().credentials(operator.operator.id).await?;
    let credentials = credentials.into_iter().map(|credential| CredentialItem {
        id: credential.id,
        name: credential.name,
        issuer: credential.issuer,
        created: time::format_date(credential.created_s),
    });
    Ok(render_page(&ProfilePage {
        frame: operator.frame("Your sign-in", ConsoleTab::None),
        credentials: credentials.collect(),
        passkeys_available: console.webauthn.is_some(),
        providers: console.providers.names(),
    }))
}

pub(super) async fn begin_passkey(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let credentials = console.store.operators().credentials(operator.operator.id).await?;
    let existing: Vec<_> = credentials.into_iter().filter_map(|credential| credential.credential_id).collect();
    let user = PasskeyUser { handle: operator.operator.handle.as_bytes(), name: &operator.operator.name };
    let (options, state) = console.relying_party()?.begin_registration(&user, &existing);
    let digest = operator.visitor.session_cookie.digest();
    console.store.webauthn_states().save(&digest, &serde_json::to_value(state)?).await?;
    Ok(json_response(&options))
}

pub(super) async fn finish_passkey(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let state: RegistrationState = console.take_state(&operator.visitor.session_cookie).await?;
    let response: RegistrationResponse = serde_json::from_str(form.field("credential"))?;
    let NewPasskey { credential_id, record } = console.relying_party()?.finish_registration(state, &response)?;
    let name = passkey_name(&form);
    let passkey = record.to_json(&credential_id);
    let credential = NewCredential::Passkey { id: &credential_id, name: &name, passkey: &passkey };
    console.store.operators().add_credential(operator.operator.id, &credential).await?;
    Ok(redirect_with_notice("/profile", "passkey"))
}

pub(super) async fn remove_passkey(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.store.operators().remove_credential(operator.operator.id, true, id).await?;
    Ok(redirect_with_notice("/profile", "credential-removed"))
}

pub(super) async fn remove_identity(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.store.operators().remove_credential(operator.operator.id, false, id).await?;
    Ok(redirect_with_notice("/profile", "credential-removed"))
}

pub(super) async fn end_other_sessions(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.store.operators().end_other_sessions(operator.operator.id, operator.session_id).await?;
    Ok(redirect_with_notice("/profile", "sessions"))
}
