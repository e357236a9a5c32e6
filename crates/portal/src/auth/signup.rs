//! Sign up, and request a password reset. With email enabled, neither reveals whether an email has an account.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::HeaderMap;
use ipseity_domain::Client;
use ipseity_domain::account::EmailAddress;
use ipseity_store::{SessionStart, StoreError, StoreRefusal};

use crate::auth::csrf_form::CsrfForm;
use crate::auth::next_path::NextPath;
use crate::auth::password::{Password, Requester};
use crate::error::PortalError;
use crate::page::Visitor;
use crate::state::Portal;
use crate::view::auth::{EmailSentPage, ForgotPage, SignUpPage};
use crate::view::frame::Tab;

pub(crate) const INVALID_EMAIL: &str = "Enter a valid email address, such as you@example.com. Leave out your name, quotes and \
     comments. Before the @, use only letters without accents (a–z), digits and symbols.";
/// Shown where email cannot notify the owner instead, and to visitors who proved that they own the address.
pub(crate) const EMAIL_TAKEN: &str = "An account with this email already exists. Sign in, or use another email.";

pub(crate) async fn signup_form(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    if visitor.member.is_some() {
        return Redirect::to("/keys").into_response();
    }
    signup_page(&portal, &visitor, String::new(), None)
}

fn signup_page(portal: &Portal, visitor: &Visitor, email: String, form_error: Option<&str>) -> Response {
    visitor.render(
        portal,
        &SignUpPage {
            frame: visitor.frame(&portal.public_pages, "Create your account", Tab::None),
            email,
            form_error: form_error.map(str::to_owned),
            signup_open: portal.settings.signup_open,
            needs_email_confirmation: portal.settings.email_enabled,
        },
    )
}

pub(crate) async fn sign_up(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.settings.signup_open {
        return Err(PortalError::SignupClosed);
    }
    let email_input = form.field("email").to_owned();
    let Some(email) = EmailAddress::parse(&email_input) else {
        return Ok(signup_page(&portal, &visitor, email_input, Some(INVALID_EMAIL)));
    };
    let password = match Password::parse_new(form.field("password"), email.as_str()) {
        Ok(password) => password,
        Err(message) => return Ok(signup_page(&portal, &visitor, email_input, Some(message))),
    };
    portal.subnet_throttle.record_attempt(client.address.subnet())?;
    if portal.settings.email_enabled {
        portal.email_limits.record_for_subnet(client.address.subnet())?;
    }
    let hash = portal.password_pool.hash(Requester::Stranger, password).await?;
    if portal.settings.email_enabled {
        portal.email_limits.record_for_node()?;
        portal.email_requests().request_signup(&email, &hash, &visitor.session_cookie.digest()).await?;
        return Ok(email_sent_page(
            &portal,
            &visitor,
            email.to_string(),
            "Open the link in the email to finish signing up.",
            "/signup",
        ));
    }
    match portal.store.accounts().create_with_password(&email, &hash).await {
        Ok(account) => {
            portal.open_session(account.id, &headers, SessionStart::Link, &NextPath::parse("/keys/new")).await
        }
        Err(StoreError::Refused(StoreRefusal::AccountExists)) => {
            Ok(signup_page(&portal, &visitor, email_input, Some(EMAIL_TAKEN)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The page after a form that sends an email.
fn email_sent_page(
    portal: &Portal,
    visitor: &Visitor,
    email: String,
    message: &'static str,
    retry_href: &'static str,
) -> Response {
    let frame = visitor.frame(&portal.public_pages, "Check your email", Tab::None);
    visitor.render(portal, &EmailSentPage { frame, email, message, retry_href })
}

pub(crate) async fn forgot_form(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    forgot_page(&portal, &visitor, String::new(), None)
}

fn forgot_page(portal: &Portal, visitor: &Visitor, email: String, form_error: Option<&str>) -> Response {
    let frame = visitor.frame(&portal.public_pages, "Reset your password", Tab::None);
    let form_error = form_error.map(str::to_owned);
    visitor.render(portal, &ForgotPage { frame, email, form_error, email_enabled: portal.settings.email_enabled })
}

pub(crate) async fn request_password_reset(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let email_input = form.field("email").to_owned();
    if !portal.settings.email_enabled {
        return Ok(forgot_page(&portal, &visitor, email_input, None));
    }
    let Some(email) = EmailAddress::parse(&email_input) else {
        return Ok(forgot_page(&portal, &visitor, email_input, Some(INVALID_EMAIL)));
    };
    portal.subnet_throttle.record_attempt(client.address.subnet())?;
    portal.email_limits.record_for_subnet(client.address.subnet())?;
    portal.email_limits.record_for_node()?;
    portal.email_requests().request_password_reset(&email).await?;
    let message = "If an account exists, we’ve emailed a reset link.";
    Ok(email_sent_page(&portal, &visitor, email.to_string(), message, "/forgot"))
}
