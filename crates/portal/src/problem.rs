//! What cannot be shown or done: each with its status, a sentence that says why, and where to go on.

use std::error::Error;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use ledger::LedgerError;
use store::StoreError;

use crate::Portal;
use crate::page::Visitor;
use crate::password::Busy;
use crate::throttle::Wait;
use crate::view::{ProblemPage, Tab};
use crate::visit::Visit;

/// Why a page is not what was asked for.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Nobody is signed in.
    SignIn,
    /// The form's token is missing, foreign or from before the last sign-in.
    StaleForm,
    /// The page was asked to do something by another site.
    ForeignSite,
    /// There is nothing here, or it is another's.
    NotFound,
    /// The documentation has no such page.
    NoSuchPage,
    /// The link was used, or is too old.
    LinkGone,
    /// Strangers may not sign up.
    Closed,
    /// The passkey is unknown, or its ceremony failed.
    PasskeyRefused,
    /// Ten passkeys are there.
    PasskeysSpent,
    /// Tried too often.
    Throttled(Wait),
    /// More passwords wait to be checked than the bound allows.
    Busy,
    /// A store did not answer, or answered strangely; its cause is logged where it arises.
    Outage,
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Refused(store::Refused::UnknownKey) => Self::NotFound,
            StoreError::Refused(store::Refused::LinkGone) => Self::LinkGone,
            StoreError::Refused(store::Refused::UnknownAccount) => Self::SignIn,
            StoreError::Refused(store::Refused::PasskeyExists) => Self::PasskeyRefused,
            StoreError::Refused(_) | StoreError::Outage(_) | StoreError::Fault(_) => {
                tracing::error!(error = &error as &dyn Error, "a page could not be made");
                Self::Outage
            }
        }
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        tracing::error!(error = &error as &dyn Error, "the counter store could not be asked for a page");
        Self::Outage
    }
}

impl From<Busy> for Problem {
    fn from(Busy: Busy) -> Self {
        Self::Busy
    }
}

impl From<Wait> for Problem {
    fn from(wait: Wait) -> Self {
        Self::Throttled(wait)
    }
}

struct Told {
    status: StatusCode,
    heading: &'static str,
    sentence: String,
    next: (&'static str, &'static str),
}

impl Problem {
    /// What the page says; `None` where there is a page to go to instead.
    fn told(&self) -> Option<Told> {
        let told =
            |status, heading, sentence: &str, next| Told { status, heading, sentence: sentence.to_owned(), next };
        let told = match self {
            Self::SignIn => return None,
            Self::StaleForm => told(
                StatusCode::FORBIDDEN,
                "This form is out of date",
                "It was opened before you last signed in or out, or cookies are switched off. Nothing was changed. Open the page again and send the form once more.",
                ("/keys", "Open your keys"),
            ),
            Self::ForeignSite => told(
                StatusCode::FORBIDDEN,
                "This came from another site",
                "Another site sent this form in your name. Nothing was changed.",
                ("/keys", "Open your keys"),
            ),
            Self::NotFound => told(
                StatusCode::NOT_FOUND,
                "Nothing is here",
                "It was deleted, or it never was. A deleted key cannot be brought back.",
                ("/keys", "Open your keys"),
            ),
            Self::NoSuchPage => told(
                StatusCode::NOT_FOUND,
                "There is no such page",
                "The documentation has no page of this name. Its list of pages, and a search, are where it begins.",
                ("/docs", "Open the documentation"),
            ),
            Self::LinkGone => told(
                StatusCode::GONE,
                "This link has done its work",
                "A link from a mail works once and for a limited time. If it was not you who used it, ask for a new one and change your password.",
                ("/keys", "Open your keys"),
            ),
            Self::Closed => told(
                StatusCode::FORBIDDEN,
                "Sign-up is by invitation",
                "The operator of this installation sends invitations. Nothing was stored.",
                ("/signup", "How to get one"),
            ),
            Self::PasskeyRefused => told(
                StatusCode::FORBIDDEN,
                "The passkey was not accepted",
                "It is not known here, or it took longer than five minutes. Try again, or sign in with your password.",
                ("/signin", "Sign in"),
            ),
            Self::PasskeysSpent => told(
                StatusCode::CONFLICT,
                "Ten passkeys are the most",
                "Delete one that you no longer use, then add the new one.",
                ("/account", "Back to your account"),
            ),
            Self::Throttled(Wait(wait)) => Told {
                status: StatusCode::TOO_MANY_REQUESTS,
                heading: "Too many attempts",
                sentence: format!(
                    "There were too many attempts from your network or on this account. Try again in {}; a passkey, a browser that you signed in with before, or a link to a new password works meanwhile.",
                    minutes(wait.as_secs())
                ),
                next: ("/forgot", "Get a link by mail"),
            },
            Self::Busy => told(
                StatusCode::SERVICE_UNAVAILABLE,
                "Very busy",
                "Many people sign in at this moment. Nothing was changed; try again in a few seconds.",
                ("/signin", "Try again"),
            ),
            Self::Outage => told(
                StatusCode::SERVICE_UNAVAILABLE,
                "A part of the service does not answer",
                "Your keys go on working. Try again in a moment; if it goes on, tell the operator.",
                ("/keys", "Try again"),
            ),
        };
        Some(told)
    }

    fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Throttled(Wait(wait)) => Some(wait.as_secs().max(1)),
            Self::Busy | Self::Outage => Some(5),
            Self::SignIn
            | Self::StaleForm
            | Self::ForeignSite
            | Self::NotFound
            | Self::NoSuchPage
            | Self::LinkGone
            | Self::Closed
            | Self::PasskeyRefused
            | Self::PasskeysSpent => None,
        }
    }
}

fn minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// Carries the problem to [`tell`], which knows for whom the page is.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// Bounds the time for a page, and turns a problem into a page of its own for whoever looks.
pub(crate) async fn tell(State(portal): State<Arc<Portal>>, request: Request, next: Next) -> Response {
    let visit = Visit::of(request.headers());
    let deadline = portal.settings.page_timeout;
    let mut response = tokio::time::timeout(deadline, next.run(request)).await.unwrap_or_else(|_elapsed| {
        tracing::error!("a page took too long");
        Problem::Outage.into_response()
    });
    let Some(problem) = response.extensions_mut().remove::<Arc<Problem>>() else { return response };
    let Some(Told { status, heading, sentence, next }) = problem.told() else {
        return Redirect::to("/signin").into_response();
    };
    let visitor = Visitor::find(&portal, visit).await;
    let frame = visitor.frame(&portal, heading, Tab::None);
    let mut response = visitor.show(&portal, &ProblemPage { frame, heading, sentence, next });
    *response.status_mut() = status;
    if let Some(seconds) = problem.retry_after_s() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
