//! Renders errors as pages: what happened, and what to do next.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use ipseity_domain::{Client, FailedAttempt};

use crate::auth::session_cookie::SessionCookie;
use crate::auth::throttle::RetryAfter;
use crate::error::PortalError;
use crate::page::{Visitor, render_page};
use crate::public_pages::PageState;
use crate::view::frame::Tab;
use crate::view::static_pages::ErrorPage;

struct ErrorPageContent {
    status: StatusCode,
    heading: &'static str,
    message: String,
    next_link: (&'static str, &'static str),
}

/// What an error responds with.
enum ErrorOutcome {
    Redirect(String),
    Page(ErrorPageContent),
}

fn error_outcome(error: &PortalError) -> ErrorOutcome {
    let content = match error {
        PortalError::NotSignedIn => return ErrorOutcome::Redirect("/signin".to_owned()),
        PortalError::SignInNeeded(next) => return ErrorOutcome::Redirect(next.append_to("/signin")),
        PortalError::ConfirmationNeeded(next) => {
            return ErrorOutcome::Redirect(format!("/account/confirm?next={next}"));
        }
        PortalError::TwoFactorRequired => return ErrorOutcome::Redirect("/account/two-factor".to_owned()),
        PortalError::LastSecondFactor => last_second_factor_content(),
        PortalError::StaleForm => content(
            StatusCode::FORBIDDEN,
            "Session expired",
            "You signed in or out since you opened this form, or cookies are disabled. Nothing changed. Please try again.",
            ("/keys", "Go to your keys"),
        ),
        PortalError::CrossOrigin => content(
            StatusCode::FORBIDDEN,
            "Request blocked",
            "Another site submitted this form. Nothing changed.",
            ("/keys", "Go to your keys"),
        ),
        PortalError::NotFound => not_found_content(),
        PortalError::PathNotFound => path_not_found_content(),
        PortalError::DocsPageNotFound => docs_page_not_found_content(),
        PortalError::LinkExpired => content(
            StatusCode::GONE,
            "This link has expired or was already used",
            "Links in emails work once, for a limited time. If you didn’t use it, request a new link and change your password.",
            ("/keys", "Go to your keys"),
        ),
        PortalError::SignupClosed => content(
            StatusCode::FORBIDDEN,
            "Invitation only",
            "Ask the administrator of this site for an invite. Nothing was saved.",
            ("/signup", "How to get an invite"),
        ),
        PortalError::PasskeyRefused => content(
            StatusCode::FORBIDDEN,
            "Passkey not accepted",
            "The passkey isn’t registered here, or it took longer than five minutes. Try again, or sign in with your password.",
            ("/signin", "Sign in"),
        ),
        PortalError::ProviderFailed { reason, retry_path } => {
            content(StatusCode::FORBIDDEN, "Sign-in not completed", reason, (*retry_path, "Try again"))
        }
        PortalError::IdentityNotLinked(provider) => identity_not_linked_content(provider),
        PortalError::IdentityTaken(provider) => identity_taken_content(provider),
        PortalError::IdentityLimitReached => identity_limit_content(),
        PortalError::WrongPassword => content(
            StatusCode::FORBIDDEN,
            "Incorrect password",
            "Incorrect password. Enter the current password of your account, or confirm with a passkey first.",
            ("/account", "Back to your account"),
        ),
        PortalError::PasskeyLimitReached => content(
            StatusCode::CONFLICT,
            "Limit reached (10 passkeys)",
            "Remove a passkey you no longer use, then add the new one.",
            ("/account", "Back to your account"),
        ),
        PortalError::Throttled(wait) => rate_limit_content(
            StatusCode::TOO_MANY_REQUESTS,
            "Too many attempts",
            "There were too many attempts from your network or on this account.",
            *wait,
            "A browser you signed in with before still works.",
            ("/signin", "Sign in"),
        ),
        PortalError::CodesThrottled(wait) => codes_throttled_content(*wait),
        PortalError::AccountChangesThrottled(wait) => changes_throttled_content(
            "Your account was changed too often in the last ten minutes. Nothing changed.",
            *wait,
            "You can still change your password and end sessions.",
            ("/account", "Back to your account"),
        ),
        PortalError::KeyActionsThrottled(wait) => changes_throttled_content(
            "Your account changed keys too often in the last ten minutes. Nothing changed.",
            *wait,
            "You can still deactivate and delete keys.",
            ("/keys", "Go to your keys"),
        ),
        PortalError::EmailsThrottled(wait) => emails_throttled_content(*wait),
        PortalError::EmailLimitReached(wait) => email_limit_content(*wait),
        PortalError::StreamLimitReached => stream_limit_content(),
        PortalError::Busy => content(
            StatusCode::SERVICE_UNAVAILABLE,
            "We’re busy",
            "Nothing changed. Try again in a few seconds.",
            ("/signin", "Try again"),
        ),
        PortalError::Unavailable => content(
            StatusCode::SERVICE_UNAVAILABLE,
            "Dashboard temporarily unavailable",
            "Your keys still work. Try again in a moment. If this persists, contact the administrator of this site.",
            ("/keys", "Try again"),
        ),
    };
    ErrorOutcome::Page(content)
}

fn not_found_content() -> ErrorPageContent {
    content(
        StatusCode::NOT_FOUND,
        "Page not found",
        "It may have been deleted. Deleted keys can’t be restored.",
        ("/keys", "Go to your keys"),
    )
}

fn path_not_found_content() -> ErrorPageContent {
    content(
        StatusCode::NOT_FOUND,
        "Page not found",
        "There is no page with this address. Check it for a typing error, or start from the home page.",
        ("/", "Go to the home page"),
    )
}

fn docs_page_not_found_content() -> ErrorPageContent {
    content(
        StatusCode::NOT_FOUND,
        "Page not found",
        "The docs have no page with this name. Browse or search all pages.",
        ("/docs", "Open the docs"),
    )
}

/// The same for every account of the provider, so it reveals nothing about accounts here.
fn identity_not_linked_content(provider: &str) -> ErrorPageContent {
    let message = format!(
        "This {provider} account isn’t linked to an account here, so nothing happened. Sign in in another way. Then link it: \
         open Account, and choose Linked accounts."
    );
    content(
        StatusCode::FORBIDDEN,
        "No account is linked",
        &message,
        ("/signin?next=/account/sign-in", "Sign in to link it"),
    )
}

fn identity_taken_content(provider: &str) -> ErrorPageContent {
    let message = format!(
        "This {provider} account already signs in to another account here. Nothing changed. To move it, sign in to the other \
         account and unlink it there."
    );
    content(StatusCode::CONFLICT, "Linked to another account", &message, ("/account/sign-in", "Linked accounts"))
}

fn identity_limit_content() -> ErrorPageContent {
    content(
        StatusCode::CONFLICT,
        "Limit reached (10 linked accounts)",
        "Unlink an account you no longer use, then link the new one.",
        ("/account/sign-in", "Linked accounts"),
    )
}

fn codes_throttled_content(wait: RetryAfter) -> ErrorPageContent {
    rate_limit_content(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many wrong codes",
        "There were too many wrong codes on this account.",
        wait,
        "A passkey still works.",
        ("/signin", "Sign in"),
    )
}

fn stream_limit_content() -> ErrorPageContent {
    content(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many open pages",
        "Your account has too many open pages with live updates. Close some, or reload this page to update it.",
        ("/keys", "Go to your keys"),
    )
}

fn last_second_factor_content() -> ErrorPageContent {
    content(
        StatusCode::CONFLICT,
        "Your only second factor",
        "Two-factor authentication is on, and this is your only passkey. Set up an authenticator app first, or turn it off.",
        ("/account/two-factor", "Two-factor authentication"),
    )
}

fn changes_throttled_content(
    reason: &str,
    wait: RetryAfter,
    advice: &str,
    next_link: (&'static str, &'static str),
) -> ErrorPageContent {
    rate_limit_content(StatusCode::TOO_MANY_REQUESTS, "Too many changes", reason, wait, advice, next_link)
}

fn content(
    status: StatusCode,
    heading: &'static str,
    message: &str,
    next_link: (&'static str, &'static str),
) -> ErrorPageContent {
    ErrorPageContent { status, heading, message: message.to_owned(), next_link }
}

/// The content of a page that says how long to wait, and what is possible until then.
fn rate_limit_content(
    status: StatusCode,
    heading: &'static str,
    reason: &str,
    RetryAfter(wait): RetryAfter,
    advice: &str,
    next_link: (&'static str, &'static str),
) -> ErrorPageContent {
    let message = format!("{reason} Try again in {}. {advice}", format_minutes(wait.as_secs()));
    ErrorPageContent { status, heading, message, next_link }
}

fn emails_throttled_content(wait: RetryAfter) -> ErrorPageContent {
    rate_limit_content(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many emails",
        "Your network requested too many emails. We didn’t send this one.",
        wait,
        "Check your inbox and spam folder for an earlier email.",
        ("/signin", "Sign in"),
    )
}

fn email_limit_content(wait: RetryAfter) -> ErrorPageContent {
    rate_limit_content(
        StatusCode::SERVICE_UNAVAILABLE,
        "We can’t send emails right now",
        "There were too many requests for emails in the last hour. We didn’t send yours, and nothing changed.",
        wait,
        "You can still sign in.",
        ("/signin", "Sign in"),
    )
}

fn retry_after_s(error: &PortalError) -> Option<u64> {
    match error {
        PortalError::Throttled(RetryAfter(wait))
        | PortalError::CodesThrottled(RetryAfter(wait))
        | PortalError::AccountChangesThrottled(RetryAfter(wait))
        | PortalError::KeyActionsThrottled(RetryAfter(wait))
        | PortalError::EmailsThrottled(RetryAfter(wait))
        | PortalError::EmailLimitReached(RetryAfter(wait)) => Some(wait.as_secs().max(1)),
        PortalError::Busy | PortalError::Unavailable => Some(5),
        PortalError::NotSignedIn
        | PortalError::SignInNeeded(_)
        | PortalError::ConfirmationNeeded(_)
        | PortalError::TwoFactorRequired
        | PortalError::LastSecondFactor
        | PortalError::StaleForm
        | PortalError::CrossOrigin
        | PortalError::NotFound
        | PortalError::PathNotFound
        | PortalError::DocsPageNotFound
        | PortalError::LinkExpired
        | PortalError::SignupClosed
        | PortalError::PasskeyRefused
        | PortalError::ProviderFailed { .. }
        | PortalError::IdentityNotLinked(_)
        | PortalError::IdentityTaken(_)
        | PortalError::IdentityLimitReached
        | PortalError::WrongPassword
        | PortalError::PasskeyLimitReached
        | PortalError::StreamLimitReached => None,
    }
}

/// Such as `a minute` or `5 minutes`.
pub(crate) fn format_minutes(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// Applies the page timeout, and replaces a [`PortalError`] with its page.
pub(crate) async fn render_errors<S: PageState>(State(state): State<S>, request: Request, next: Next) -> Response {
    let session_cookie = SessionCookie::from_headers(request.headers());
    let client = request.extensions().get::<Client>().copied();
    let pages = state.public_pages();
    let timeout = pages.settings.page_timeout;
    let mut response = tokio::time::timeout(timeout, next.run(request)).await.unwrap_or_else(|_elapsed| {
        tracing::error!("page timed out");
        PortalError::Unavailable.into_response()
    });
    let Some(error) = response.extensions_mut().remove::<Arc<PortalError>>() else { return response };
    let ErrorPageContent { status, heading, message, next_link } = match error_outcome(&error) {
        ErrorOutcome::Redirect(target) => return Redirect::to(&target).into_response(),
        ErrorOutcome::Page(content) => content,
    };
    let visitor = Visitor::load_or_anonymous(&state, session_cookie, client).await;
    let frame = visitor.frame(pages, heading, Tab::None);
    let mut response = render_page(&ErrorPage { frame, heading, message, next_link });
    *response.status_mut() = status;
    // If a store is unavailable, that is not the client's fault.
    if !matches!(*error, PortalError::Unavailable) {
        response.extensions_mut().insert(FailedAttempt);
    }
    if let Some(seconds) = retry_after_s(&error) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
