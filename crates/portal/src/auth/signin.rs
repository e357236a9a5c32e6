//! Sign in with a password, and sign out. An unknown email gets the same response, after the same time, as a wrong password.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use http::header::SET_COOKIE;
use ipseity_domain::Client;
use ipseity_domain::account::EmailAddress;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::password::Password;
use crate::auth::session::email_digest;
use crate::auth::session_cookie::{self, SessionCookie};
use crate::error::PortalError;
use crate::page::{CurrentMember, Visitor, redirect_with_notice};
use crate::state::Portal;
use crate::view::auth::SignInPage;
use crate::view::frame::Tab;

const WRONG_CREDENTIALS: &str = "Incorrect email or password. Check both, or reset your password.";

pub(crate) async fn signin_form(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    signin_page(&portal, &visitor, String::new(), None)
}

fn signin_page(portal: &Portal, visitor: &Visitor, email: String, form_error: Option<String>) -> Response {
    let frame = visitor.frame(portal, "Sign in", Tab::None);
    visitor.render(portal, &SignInPage { frame, email, form_error, passkeys_available: portal.webauthn.is_some() })
}

pub(crate) async fn sign_in(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let email_input = form.field("email");
    let (Some(email), Some(password)) = (EmailAddress::parse(email_input), Password::parse(form.field("password")))
    else {
        portal.subnet_throttle.record_attempt(client.address.subnet())?;
        return Ok(signin_page(&portal, &visitor, email_input.to_owned(), Some(WRONG_CREDENTIALS.to_owned())));
    };
    let attempt_source = portal.check_login_attempt(&client, &headers, &email).await?;
    let credentials = portal.store.accounts().find_credentials(&email).await?;
    let (account_id, hash) =
        credentials.map_or((None, None), |credentials| (Some(credentials.account_id), credentials.password_hash));
    let is_correct = portal.password_pool.verify(password, hash).await?;
    match account_id.filter(|_| is_correct) {
        Some(account_id) => {
            portal.reset_login_attempts(&attempt_source, &email);
            portal.open_session(account_id, &headers).await
        }
        None => {
            if let AttemptSource::UnknownDevice = attempt_source {
                // At the limit, this attempt still gets its response; the next one is rejected.
                let _ = portal.account_throttle.record_attempt(email_digest(&email));
            }
            Ok(signin_page(&portal, &visitor, email_input.to_owned(), Some(WRONG_CREDENTIALS.to_owned())))
        }
    }
}

/// Which throttle counts an attempt.
enum AttemptSource {
    KnownDevice([u8; 32]),
    UnknownDevice,
}

impl Portal {
    /// Checks whether a password may be tried now. A browser that signed in to this account before has a separate limit, so that
    /// strangers cannot lock the owner out.
    async fn check_login_attempt(
        &self,
        client: &Client,
        headers: &HeaderMap,
        email: &EmailAddress,
    ) -> Result<AttemptSource, PortalError> {
        if let Some(device_token) = session_cookie::device_token(headers)
            && self.store.devices().is_known(email, &device_token.digest()).await?
        {
            self.device_throttle.record_attempt(device_token.digest())?;
            return Ok(AttemptSource::KnownDevice(device_token.digest()));
        }
        self.subnet_throttle.record_attempt(client.address.subnet())?;
        self.account_throttle.check(&email_digest(email))?;
        Ok(AttemptSource::UnknownDevice)
    }

    /// Resets the attempts after a correct password.
    fn reset_login_attempts(&self, source: &AttemptSource, email: &EmailAddress) {
        match source {
            AttemptSource::KnownDevice(device) => self.device_throttle.reset(device),
            AttemptSource::UnknownDevice => self.account_throttle.reset(&email_digest(email)),
        }
    }
}

pub(crate) async fn sign_out(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    portal.store.sessions().end_by_digest(&member.session_cookie().digest()).await?;
    Ok(sign_out_response(&portal, "signed-out"))
}

/// Redirects to the sign-in page with a new session cookie.
pub(crate) fn sign_out_response(portal: &Portal, notice: &'static str) -> Response {
    let mut response = redirect_with_notice("/signin", notice);
    response.headers_mut().append(SET_COOKIE, SessionCookie::generate().to_set_cookie(portal.session_idle_timeout_s()));
    response
}
