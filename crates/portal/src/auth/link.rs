//! Links in emails and invitations. Opening a link changes nothing; the form on its page does. Each link works once.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use ipseity_domain::Client;
use ipseity_store::{EmailToken, EmailTokenKind, StoreError, StoreRefusal};

use crate::auth::csrf_form::CsrfForm;
use crate::auth::password::Password;
use crate::auth::session_cookie::SecretToken;
use crate::auth::signup::EMAIL_TAKEN;
use crate::error::PortalError;
use crate::page::{Visitor, redirect_with_notice};
use crate::state::Portal;
use crate::view::auth::{LinkAction, LinkPage};
use crate::view::frame::Tab;

const WRONG_SIGNUP_PASSWORD: &str =
    "Incorrect password. Enter the one you signed up with. Didn’t sign up? Close this page.";

pub(crate) async fn link_form(
    State(portal): State<Arc<Portal>>,
    Path(token): Path<String>,
    visitor: Visitor,
) -> Result<Response, PortalError> {
    let (_, email_token) = portal.find_email_token(&token).await?;
    Ok(link_page(&portal, &visitor, &email_token, token, None))
}

fn link_page(
    portal: &Portal,
    visitor: &Visitor,
    email_token: &EmailToken,
    token: String,
    form_error: Option<String>,
) -> Response {
    let action = link_action(email_token, visitor);
    let title = match action {
        LinkAction::ConfirmSignup { .. } => "Confirm your email",
        LinkAction::ResetPassword => "Choose a new password",
        LinkAction::AcceptInvitation => "Welcome",
        LinkAction::ConfirmNewEmail => "Confirm your new email",
    };
    let frame = visitor.frame(portal, title, Tab::None);
    visitor.render(portal, &LinkPage { frame, action, email: email_token.email.to_string(), token, form_error })
}

/// Confirming in another browser than the one that signed up requires the password. Otherwise the owner of an address could
/// confirm, by mistake, an account whose password a stranger chose.
fn link_action(email_token: &EmailToken, visitor: &Visitor) -> LinkAction {
    match email_token.kind {
        EmailTokenKind::SignUp => LinkAction::ConfirmSignup {
            needs_password: email_token.browser_digest != Some(visitor.session_cookie.digest()),
        },
        EmailTokenKind::PasswordReset => LinkAction::ResetPassword,
        EmailTokenKind::Invite => LinkAction::AcceptInvitation,
        EmailTokenKind::EmailChange => LinkAction::ConfirmNewEmail,
    }
}

pub(crate) async fn redeem_link(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    Path(token): Path<String>,
    headers: HeaderMap,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let (digest, email_token) = portal.find_email_token(&token).await?;
    let show_error =
        |message: &str| Ok(link_page(&portal, &visitor, &email_token, token.clone(), Some(message.to_owned())));
    let password_input = form.field("password");
    match link_action(&email_token, &visitor) {
        LinkAction::ConfirmSignup { needs_password } => {
            if needs_password {
                portal.subnet_throttle.record_attempt(client.address.subnet())?;
                let Some(password) = Password::parse(password_input) else { return show_error(WRONG_SIGNUP_PASSWORD) };
                if !portal.password_pool.verify(password, email_token.password_hash.clone()).await? {
                    return show_error(WRONG_SIGNUP_PASSWORD);
                }
            }
            match portal.store.email_tokens().redeem_signup(&digest).await {
                Ok(account) => portal.open_session(account.id, &headers).await,
                Err(StoreError::Refused(StoreRefusal::AccountExists)) => Err(PortalError::LinkExpired),
                Err(error) => Err(error.into()),
            }
        }
        LinkAction::ResetPassword | LinkAction::AcceptInvitation => {
            let password = match Password::parse_new(password_input) {
                Ok(password) => password,
                Err(message) => return show_error(message),
            };
            portal.subnet_throttle.record_attempt(client.address.subnet())?;
            let hash = portal.password_pool.hash(password).await?;
            let account_id = portal.store.email_tokens().redeem_password(&digest, &hash).await?;
            portal.open_session(account_id, &headers).await
        }
        LinkAction::ConfirmNewEmail => match portal.store.email_tokens().redeem_email_change(&digest).await {
            Ok(_) => Ok(redirect_with_notice("/account", "email")),
            Err(StoreError::Refused(StoreRefusal::AccountExists)) => show_error(EMAIL_TAKEN),
            Err(error) => Err(error.into()),
        },
    }
}

/// Generates the token of an invitation link, and the digest to store.
#[must_use]
pub fn generate_invitation() -> (String, [u8; 32]) {
    let token = SecretToken::generate();
    (token.expose().to_owned(), token.digest())
}

impl Portal {
    async fn find_email_token(&self, token: &str) -> Result<([u8; 32], EmailToken), PortalError> {
        let digest = SecretToken::parse(token).ok_or(PortalError::LinkExpired)?.digest();
        let email_token = self.store.email_tokens().find(&digest).await?.ok_or(PortalError::LinkExpired)?;
        Ok((digest, email_token))
    }
}
