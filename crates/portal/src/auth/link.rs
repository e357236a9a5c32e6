//! Links in emails and invitations. Opening a link changes nothing; the form on its page does. Each link works once.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use ipseity_domain::account::EmailAddress;
use ipseity_domain::{BURST_LIMIT, Client, Restrictions};
use ipseity_store::{EmailToken, EmailTokenKind, SessionStart, StoreError, StoreRefusal};

use crate::account::WRONG_PASSWORD;
use crate::auth::csrf_form::CsrfForm;
use crate::auth::next_path::NextPath;
use crate::auth::password::{Password, Requester};
use crate::auth::second_factor::WRONG_CODE;
use crate::auth::session::email_digest;
use crate::auth::session_cookie::SecretToken;
use crate::auth::signup::EMAIL_TAKEN;
use crate::error::PortalError;
use crate::keys::new_key::RESTRICTIONS_NOT_ENABLED;
use crate::page::{Visitor, redirect_with_notice};
use crate::state::Portal;
use crate::time;
use crate::view::auth::{LinkAction, LinkPage};
use crate::view::frame::Tab;
use crate::view::keys::PresetFields;

const INVALID_FIRST_KEY: &str = "Nothing was created. Correct the marked entries.";
const WRONG_SIGNUP_PASSWORD: &str =
    "Incorrect password. Enter the one you signed up with. Didn’t sign up? Close this page.";

pub(crate) async fn link_form(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    Path(token): Path<String>,
    visitor: Visitor,
) -> Result<Response, PortalError> {
    let (_, email_token) = portal.find_email_token(&token, &client).await?;
    let first_key = if portal.creates_first_key(&email_token) {
        Some(PresetFields::new(portal.first_visitor_limit().await?))
    } else {
        None
    };
    Ok(link_page(&portal, &visitor, &email_token, token, first_key, None))
}

fn link_page(
    portal: &Portal,
    visitor: &Visitor,
    email_token: &EmailToken,
    token: String,
    first_key: Option<PresetFields>,
    form_error: Option<String>,
) -> Response {
    let action = link_action(email_token, visitor);
    let title = match action {
        LinkAction::ConfirmSignup { .. } => "Confirm your email",
        LinkAction::ResetPassword => "Choose a new password",
        LinkAction::AcceptInvitation => "Welcome",
        LinkAction::ConfirmNewEmail { .. } => "Confirm your new email",
        LinkAction::RestoreEmail => "Restore your email",
    };
    let frame = visitor.frame(&portal.public_pages, title, Tab::None);
    let is_signed_in = action == LinkAction::ConfirmNewEmail { needs_password: false };
    let needs_code = email_token.second_factor_account.is_some() && !is_signed_in;
    let email = email_token.email.to_string();
    visitor.render(portal, &LinkPage { frame, action, email, token, first_key, needs_code, form_error })
}

/// Confirming a sign-up in another browser than the one that signed up requires the password. Otherwise the owner of an address
/// could confirm, by mistake, an account whose password a stranger chose. Confirming a new email requires the account's session or
/// password. Otherwise a mistyped address would give the account to its owner.
fn link_action(email_token: &EmailToken, visitor: &Visitor) -> LinkAction {
    match email_token.kind {
        EmailTokenKind::SignUp => LinkAction::ConfirmSignup {
            needs_password: email_token.browser_digest != Some(visitor.session_cookie.digest()),
        },
        EmailTokenKind::PasswordReset => LinkAction::ResetPassword,
        EmailTokenKind::Invite => LinkAction::AcceptInvitation,
        EmailTokenKind::EmailChange => LinkAction::ConfirmNewEmail {
            needs_password: email_token.account_id != visitor.member.as_ref().map(|member| member.account.id),
        },
        EmailTokenKind::RestoreEmail => LinkAction::RestoreEmail,
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
    let (digest, email_token) = portal.find_email_token(&token, &client).await?;
    let show_error =
        |message: &str| Ok(link_page(&portal, &visitor, &email_token, token.clone(), None, Some(message.to_owned())));
    let password_input = form.field("password");
    let action = link_action(&email_token, &visitor);
    match action {
        LinkAction::ConfirmSignup { needs_password } => {
            // A form that was opened before an upgrade has no choice.
            let creates_key = portal.creates_first_key(&email_token) && !form.field("preset").is_empty();
            let (mut fields, mut restrictions) = (None, None);
            if creates_key {
                let (mut entered, preset) = PresetFields::entered(&form, portal.first_visitor_limit().await?);
                restrictions = preset.and_then(|preset| preset.restrictions(&mut entered, time::now_s()));
                fields = Some(entered);
            }
            let show_error = |fields, message: &str| {
                let message = Some(message.to_owned());
                Ok(link_page(&portal, &visitor, &email_token, token.clone(), fields, message))
            };
            if creates_key && restrictions.is_none() {
                return show_error(fields, INVALID_FIRST_KEY);
            }
            if restrictions.as_ref().is_some_and(|restrictions| *restrictions != Restrictions::default())
                && !portal.store.keys().are_restrictions_enabled().await?
            {
                return show_error(fields, RESTRICTIONS_NOT_ENABLED);
            }
            if needs_password {
                portal.subnet_throttle.record_attempt(client.address.subnet())?;
                let Some(password) = Password::parse(password_input) else {
                    return show_error(fields, WRONG_SIGNUP_PASSWORD);
                };
                if !portal
                    .password_pool
                    .verify(Requester::Stranger, password, email_token.password_hash.clone())
                    .await?
                    .is_correct()
                {
                    return show_error(fields, WRONG_SIGNUP_PASSWORD);
                }
            }
            match portal.store.email_tokens().redeem_signup(&digest).await {
                Ok(account) => match restrictions {
                    Some(restrictions) => portal.welcome_with_key(account, &headers, &restrictions).await,
                    None => portal.open_session(account.id, &headers, SessionStart::Link, &NextPath::default()).await,
                },
                Err(StoreError::Refused(StoreRefusal::AccountExists)) => Err(PortalError::LinkExpired),
                Err(error) => Err(error.into()),
            }
        }
        LinkAction::ResetPassword | LinkAction::AcceptInvitation | LinkAction::RestoreEmail => {
            let password = match Password::parse_new(password_input, email_token.email.as_str()) {
                Ok(password) => password,
                Err(message) => return show_error(message),
            };
            portal.subnet_throttle.record_attempt(client.address.subnet())?;
            // An account with two-factor authentication is not lost with its mailbox.
            if let Some(account_id) = email_token.second_factor_account
                && !portal.verify_second_factor(account_id, form.field("code")).await?
            {
                return show_error(WRONG_CODE);
            }
            let requester = Requester::Owner(email_digest(email_token.email.as_str()));
            let hash = portal.password_pool.hash(requester, password).await?;
            let redeemed = if action == LinkAction::RestoreEmail {
                portal.store.email_tokens().restore_email(&digest, &hash).await
            } else {
                portal.store.email_tokens().redeem_password(&digest, &hash).await
            };
            match redeemed {
                Ok(account_id) => {
                    portal.open_session(account_id, &headers, SessionStart::Link, &NextPath::default()).await
                }
                Err(StoreError::Refused(StoreRefusal::AccountExists)) => show_error(EMAIL_TAKEN),
                Err(error) => Err(error.into()),
            }
        }
        LinkAction::ConfirmNewEmail { needs_password } => {
            if needs_password && !portal.verify_link_password(&email_token, &client, &headers, password_input).await? {
                return show_error(WRONG_PASSWORD);
            }
            if needs_password
                && let Some(account_id) = email_token.second_factor_account
                && !portal.verify_second_factor(account_id, form.field("code")).await?
            {
                return show_error(WRONG_CODE);
            }
            match portal.store.email_tokens().redeem_email_change(&digest).await {
                Ok(account_id) if needs_password => {
                    portal.open_session(account_id, &headers, SessionStart::SignIn, &NextPath::default()).await
                }
                Ok(_) => Ok(redirect_with_notice("/account", "email")),
                Err(StoreError::Refused(StoreRefusal::AccountExists)) => show_error(EMAIL_TAKEN),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Generates the token of an invitation link, and the digest to store.
#[must_use]
pub fn generate_invitation() -> (String, [u8; 32]) {
    let token = SecretToken::generate();
    (token.expose().to_owned(), token.digest())
}

impl Portal {
    /// Whether redeeming a link creates the first key. Not if the owner needs two-factor authentication before using the portal.
    fn creates_first_key(&self, email_token: &EmailToken) -> bool {
        email_token.kind == EmailTokenKind::SignUp && !self.settings.requires_two_factor
    }

    /// Requests per minute of one visitor, for the first key of an account. New accounts have the limits of the contract.
    async fn first_visitor_limit(&self) -> Result<u32, PortalError> {
        self.visitor_limit(BURST_LIMIT).await
    }

    async fn find_email_token(&self, token: &str, client: &Client) -> Result<([u8; 32], EmailToken), PortalError> {
        let digest = SecretToken::parse(token).ok_or(PortalError::LinkExpired)?.digest();
        let lookup = self.store.email_tokens().find(&digest);
        let found = self.secret_lookups.find(digest, client.address.subnet(), lookup).await?;
        Ok((digest, found.ok_or(PortalError::LinkExpired)?))
    }

    /// Verifies the password of the account that an email change belongs to. Attempts count like sign-ins to it.
    async fn verify_link_password(
        self: &Arc<Self>,
        email_token: &EmailToken,
        client: &Client,
        headers: &HeaderMap,
        password_input: &str,
    ) -> Result<bool, PortalError> {
        let account_id = email_token.account_id.ok_or(PortalError::LinkExpired)?;
        let account = self.store.accounts().find(account_id).await?.ok_or(PortalError::LinkExpired)?;
        let (Some(email), Some(password)) = (EmailAddress::parse(&account.email), Password::parse(password_input))
        else {
            return Ok(false);
        };
        Ok(self.verify_login(client, headers, &email, password).await? == Some(account_id))
    }
}
