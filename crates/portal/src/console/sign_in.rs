//! Sign-in with a passkey, and sessions.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::HeaderMap;
use http::header::SET_COOKIE;
use ipseity_store::{AuthenticatedOperator, OperatorPasskey};
use serde::de::DeserializeOwned;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::passkeys::json_response;
use crate::auth::session::session_label;
use crate::auth::session_cookie::SessionCookie;
use crate::auth::webauthn::{AuthenticationResponse, AuthenticationState, KnownPasskey, PasskeyRecord, RelyingParty};
use crate::console::error::ConsoleError;
use crate::console::operator::{ConsoleVisitor, CurrentOperator};
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::pages::ConsoleSignInPage;

pub(super) async fn show(State(console): State<Arc<Console>>, visitor: ConsoleVisitor) -> Response {
    if visitor.signed_in.is_some() {
        return Redirect::to("/").into_response();
    }
    let frame = visitor.frame("Sign in", ConsoleTab::None);
    visitor.render(
        &console,
        &ConsoleSignInPage {
            frame,
            passkeys_available: console.webauthn.is_some(),
            providers: console.providers.names(),
        },
    )
}

pub(super) async fn begin_passkey(
    State(console): State<Arc<Console>>,
    visitor: ConsoleVisitor,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.sign_in_throttle.record_attempt(())?;
    let (options, state) = console.relying_party()?.begin_authentication();
    console.store.webauthn_states().save(&visitor.session_cookie.digest(), &serde_json::to_value(state)?).await?;
    Ok(json_response(&options))
}

pub(super) async fn finish_passkey(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    visitor: ConsoleVisitor,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let state: AuthenticationState = console.take_state(&visitor.session_cookie).await?;
    let response: AuthenticationResponse = serde_json::from_str(form.field("credential"))?;
    let credential_id = response.credential_id();
    let OperatorPasskey { operator_id, user_handle, passkey } =
        console.store.operators().find_passkey(credential_id).await?.ok_or(ConsoleError::PasskeyRefused)?;
    let record = PasskeyRecord::from_json(&passkey)?;
    let passkey = KnownPasskey { credential_id, user_handle: user_handle.as_bytes(), record: &record };
    if let Some(used) = console.relying_party()?.finish_authentication(state, &response, &passkey)? {
        console.store.operators().update_passkey(credential_id, &used.to_json(credential_id)).await?;
    }
    console.sign_in_throttle.reset(&());
    console.open_session(operator_id, &headers).await
}

pub(super) async fn sign_out(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.store.operators().end_session(&operator.visitor.session_cookie.digest()).await?;
    Ok(console.redirect_with_new_cookie("/signin").1)
}

impl Console {
    pub(super) fn relying_party(&self) -> Result<&RelyingParty, ConsoleError> {
        self.webauthn.as_ref().ok_or(ConsoleError::NotFound)
    }

    /// Takes the state that was saved when a ceremony began. It can be used once, by the same browser.
    pub(super) async fn take_state<T: DeserializeOwned>(
        &self,
        session_cookie: &SessionCookie,
    ) -> Result<T, ConsoleError> {
        let state = self.store.webauthn_states().take(&session_cookie.digest()).await?;
        Ok(serde_json::from_value(state.ok_or(ConsoleError::PasskeyRefused)?)?)
    }

    /// Finds the operator who is signed in with this cookie.
    pub(super) async fn find_operator(
        &self,
        session_cookie: &SessionCookie,
    ) -> Result<Option<AuthenticatedOperator>, ConsoleError> {
        if session_cookie.is_new() {
            return Ok(None);
        }
        Ok(self.store.operators().authenticate(&session_cookie.digest(), self.settings.session_limits).await?)
    }

    /// Opens a session with a new cookie, which prevents session fixation. The previous session ends.
    pub(super) async fn open_session(&self, operator_id: i64, headers: &HeaderMap) -> Result<Response, ConsoleError> {
        let operators = self.store.operators();
        operators.end_session(&SessionCookie::of_console(headers).digest()).await?;
        let (session_cookie, response) = self.redirect_with_new_cookie("/");
        operators.open_session(operator_id, &session_cookie.digest(), &session_label(headers)).await?;
        Ok(response)
    }

    fn redirect_with_new_cookie(&self, path: &str) -> (SessionCookie, Response) {
        let session_cookie = SessionCookie::generate_for_console();
        // PostgreSQL ends idle sessions earlier.
        let lifetime_s = self.settings.session_limits.lifetime_max.as_secs();
        let mut response = Redirect::to(path).into_response();
        response.headers_mut().append(SET_COOKIE, session_cookie.to_set_cookie(lifetime_s));
        (session_cookie, response)
    }
}
