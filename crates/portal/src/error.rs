//! What cannot be shown or done: each with its status, a sentence that says why, and where to go on.

use std::error::Error;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use ipseity_ledger::LedgerError;
use ipseity_store::StoreError;

use crate::Portal;
use crate::auth::password::PasswordQueueFull;
use crate::auth::session_cookie::SessionCookie;
use crate::auth::throttle::RetryAfter;
use crate::page::Visitor;
use crate::view::{ErrorPage, Tab};

/// Why a page is not what was asked for.
#[derive(Debug)]
pub(crate) enum PortalError {
    /// Nobody is signed in.
    NotSignedIn,
    /// The form's token is missing, foreign or from before the last sign-in.
    StaleForm,
    /// The page was asked to do something by another site.
    CrossOrigin,
    /// There is nothing here, or it is another's.
    NotFound,
    /// The documentation has no such page.
    DocsPageNotFound,
    /// The link was used, or is too old.
    LinkExpired,
    /// Strangers may not sign up.
    SignupClosed,
    /// The passkey is unknown, or its ceremony failed.
    PasskeyRefused,
    /// Ten passkeys are there.
    PasskeyLimitReached,
    /// Tried too often.
    Throttled(RetryAfter),
    /// More passwords wait to be checked than the bound allows.
    Busy,
    /// A store did not answer, or answered strangely; its cause is logged where it arises.
    Unavailable,
}

impl From<StoreError> for PortalError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Refused(ipseity_store::StoreRefusal::UnknownKey) => Self::NotFound,
            StoreError::Refused(ipseity_store::StoreRefusal::InvalidEmailToken) => Self::LinkExpired,
            StoreError::Refused(ipseity_store::StoreRefusal::UnknownAccount) => Self::NotSignedIn,
            StoreError::Refused(ipseity_store::StoreRefusal::PasskeyExists) => Self::PasskeyRefused,
            StoreError::Refused(_) | StoreError::Outage(_) | StoreError::Fault(_) => {
                tracing::error!(error = &error as &dyn Error, "a page could not be made");
                Self::Unavailable
            }
        }
    }
}

impl From<LedgerError> for PortalError {
    fn from(error: LedgerError) -> Self {
        tracing::error!(error = &error as &dyn Error, "the counter store could not be asked for a page");
        Self::Unavailable
    }
}

impl From<PasswordQueueFull> for PortalError {
    fn from(PasswordQueueFull: PasswordQueueFull) -> Self {
        Self::Busy
    }
}

impl From<RetryAfter> for PortalError {
    fn from(wait: RetryAfter) -> Self {
        Self::Throttled(wait)
    }
}

struct ErrorPageContent {
    status: StatusCode,
    heading: &'static str,
    message: String,
    next_link: (&'static str, &'static str),
}

impl PortalError {
    /// What the page says; `None` where there is a page to go to instead.
    fn page_content(&self) -> Option<ErrorPageContent> {
        let content = |status, heading, message: &str, next| ErrorPageContent {
            status,
            heading,
            message: message.to_owned(),
            next_link: next,
        };
        let content = match self {
            Self::NotSignedIn => return None,
            Self::StaleForm => content(
                StatusCode::FORBIDDEN,
                "This form is out of date",
                "It was opened before you last signed in or out, or cookies are switched off. Nothing was changed. Open the page again and send the form once more.",
                ("/keys", "Open your keys"),
            ),
            Self::CrossOrigin => content(
                StatusCode::FORBIDDEN,
                "This came from another site",
                "Another site sent this form in your name. Nothing was changed.",
                ("/keys", "Open your keys"),
            ),
            Self::NotFound => content(
                StatusCode::NOT_FOUND,
                "Nothing is here",
                "It was deleted, or it never was. A deleted key cannot be brought back.",
                ("/keys", "Open your keys"),
            ),
            Self::DocsPageNotFound => content(
                StatusCode::NOT_FOUND,
                "There is no such page",
                "The documentation has no page of this name. Its list of pages, and a search, are where it begins.",
                ("/docs", "Open the documentation"),
            ),
            Self::LinkExpired => content(
                StatusCode::GONE,
                "This link has done its work",
                "A link from a mail works once and for a limited time. If it was not you who used it, ask for a new one and change your password.",
                ("/keys", "Open your keys"),
            ),
            Self::SignupClosed => content(
                StatusCode::FORBIDDEN,
                "Sign-up is by invitation",
                "The operator of this installation sends invitations. Nothing was stored.",
                ("/signup", "How to get one"),
            ),
            Self::PasskeyRefused => content(
                StatusCode::FORBIDDEN,
                "The passkey was not accepted",
                "It is not known here, or it took longer than five minutes. Try again, or sign in with your password.",
                ("/signin", "Sign in"),
            ),
            Self::PasskeyLimitReached => content(
                StatusCode::CONFLICT,
                "Ten passkeys are the most",
                "Delete one that you no longer use, then add the new one.",
                ("/account", "Back to your account"),
            ),
            Self::Throttled(RetryAfter(wait)) => ErrorPageContent {
                status: StatusCode::TOO_MANY_REQUESTS,
                heading: "Too many attempts",
                message: format!(
                    "There were too many attempts from your network or on this account. Try again in {}; a passkey, a browser that you signed in with before, or a link to a new password works meanwhile.",
                    format_minutes(wait.as_secs())
                ),
                next_link: ("/forgot", "Get a link by mail"),
            },
            Self::Busy => content(
                StatusCode::SERVICE_UNAVAILABLE,
                "Very busy",
                "Many people sign in at this moment. Nothing was changed; try again in a few seconds.",
                ("/signin", "Try again"),
            ),
            Self::Unavailable => content(
                StatusCode::SERVICE_UNAVAILABLE,
                "A part of the service does not answer",
                "Your keys go on working. Try again in a moment; if it goes on, tell the operator.",
                ("/keys", "Try again"),
            ),
        };
        Some(content)
    }

    fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Throttled(RetryAfter(wait)) => Some(wait.as_secs().max(1)),
            Self::Busy | Self::Unavailable => Some(5),
            Self::NotSignedIn
            | Self::StaleForm
            | Self::CrossOrigin
            | Self::NotFound
            | Self::DocsPageNotFound
            | Self::LinkExpired
            | Self::SignupClosed
            | Self::PasskeyRefused
            | Self::PasskeyLimitReached => None,
        }
    }
}

fn format_minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// Carries the problem to [`tell`], which knows for whom the page is.
impl IntoResponse for PortalError {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// Bounds the time for a page, and turns a problem into a page of its own for whoever looks.
pub(crate) async fn render_errors(State(portal): State<Arc<Portal>>, request: Request, next: Next) -> Response {
    let session_cookie = SessionCookie::from_headers(request.headers());
    let timeout = portal.settings.page_timeout;
    let mut response = tokio::time::timeout(timeout, next.run(request)).await.unwrap_or_else(|_elapsed| {
        tracing::error!("a page took too long");
        PortalError::Unavailable.into_response()
    });
    let Some(error) = response.extensions_mut().remove::<Arc<PortalError>>() else { return response };
    let Some(ErrorPageContent { status, heading, message, next_link: next }) = error.page_content() else {
        return Redirect::to("/signin").into_response();
    };
    let visitor = Visitor::load_or_anonymous(&portal, session_cookie).await;
    let frame = visitor.frame(&portal, heading, Tab::None);
    let mut response = visitor.render(&portal, &ErrorPage { frame, heading, message, next_link: next });
    *response.status_mut() = status;
    if let Some(seconds) = error.retry_after_s() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
