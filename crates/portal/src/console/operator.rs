//! Who requests a page of the console, notices, and rendering.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::Response;
use http::header::SET_COOKIE;
use http::request::Parts;
use ipseity_store::{AuthenticatedOperator, Operator};

use crate::auth::session_cookie::SessionCookie;
use crate::console::error::ConsoleError;
use crate::console::state::Console;
use crate::console::view::frame::{ConsoleFrame, ConsoleTab};
use crate::page::render_page;

/// The notices that `?done=NAME` shows on the page after a form.
const NOTICES: [(&str, &str); 19] = [
    ("resumed", "Key resumed."),
    ("deactivated", "Key deactivated. Requests with it are rejected."),
    ("reactivated", "Key reactivated."),
    ("previous-revoked", "Old secret revoked."),
    ("restricted", "Restrictions saved. They apply from the next request."),
    ("limits", "Limits saved. They apply from the next request."),
    ("plan", "Plan changed. It applies from the next request."),
    ("two-factor-off", "Two-factor authentication is off. The owner gets an email."),
    ("account-deleted", "Account deleted with its keys, usage and history."),
    ("saved", "Saved. The change takes effect as soon as Redis is available again."),
    ("granted", "Request granted."),
    ("declined", "Request declined."),
    ("queued", "Email queued. It is sent within a minute."),
    ("role", "Role changed."),
    ("removed", "Operator removed and signed out."),
    ("passkey", "Passkey added."),
    ("identity", "Account linked. You can now sign in with it."),
    ("credential-removed", "Removed."),
    ("sessions", "All other sessions ended."),
];

/// The visitor of a page of the console, as the guard found it.
#[derive(Clone)]
pub(crate) struct ConsoleVisitor {
    pub(crate) session_cookie: SessionCookie,
    pub(crate) signed_in: Option<AuthenticatedOperator>,
    notice: Option<&'static str>,
}

impl ConsoleVisitor {
    pub(super) fn new(
        session_cookie: SessionCookie,
        signed_in: Option<AuthenticatedOperator>,
        query: Option<&str>,
    ) -> Self {
        let name = query.and_then(|query| query.strip_prefix("done="));
        let notice = NOTICES.iter().find(|(known, _)| Some(*known) == name).map(|(_, text)| *text);
        Self { session_cookie, signed_in, notice }
    }

    pub(crate) fn frame(&self, title: &str, tab: ConsoleTab) -> ConsoleFrame {
        ConsoleFrame {
            title: title.to_owned(),
            tab,
            operator: self.signed_in.as_ref().map(|signed_in| signed_in.operator.clone()),
            csrf_token: self.session_cookie.csrf_token(),
            notice: self.notice,
        }
    }

    /// Renders a page, and sets the session cookie that its forms need.
    pub(crate) fn render(&self, console: &Console, page: &impl Template) -> Response {
        let mut response = render_page(page);
        if self.session_cookie.is_new() {
            let lifetime_s = console.settings.session_limits.lifetime_max.as_secs();
            response.headers_mut().append(SET_COOKIE, self.session_cookie.to_set_cookie(lifetime_s));
        }
        response
    }
}

impl FromRequestParts<Arc<Console>> for ConsoleVisitor {
    type Rejection = ConsoleError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Console>) -> Result<Self, ConsoleError> {
        parts.extensions.get::<Self>().cloned().ok_or(ConsoleError::Unavailable)
    }
}

/// The signed-in operator, whose role the guard has checked.
pub(crate) struct CurrentOperator {
    pub(crate) visitor: ConsoleVisitor,
    pub(crate) operator: Operator,
    pub(crate) session_id: i64,
}

impl FromRequestParts<Arc<Console>> for CurrentOperator {
    type Rejection = ConsoleError;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, ConsoleError> {
        let visitor = ConsoleVisitor::from_request_parts(parts, console).await?;
        let AuthenticatedOperator { operator, session_id } =
            visitor.signed_in.clone().ok_or(ConsoleError::NotSignedIn)?;
        Ok(Self { visitor, operator, session_id })
    }
}

impl CurrentOperator {
    pub(crate) fn frame(&self, title: &str, tab: ConsoleTab) -> ConsoleFrame {
        self.visitor.frame(title, tab)
    }
}
