//! The visitor of a page, notices, and rendering.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::{Html, IntoResponse, Redirect, Response};
use bytes::Bytes;
use http::header::SET_COOKIE;
use http::request::Parts;
use ipseity_domain::{Client, causes};
use ipseity_store::{Account, Actor, AuthenticatedAccount};

use crate::auth::next_path::NextPath;
use crate::auth::password::Requester;
use crate::auth::session::email_digest;
use crate::auth::session_cookie::SessionCookie;
use crate::error::PortalError;
use crate::public_pages::{PageState, PublicPages};
use crate::state::Portal;
use crate::view::frame::{Notice, PageFrame, SeoMetadata, Tab};

/// The notices that `?done=NAME` shows on the page after a form.
const NOTICES: [(&str, &str); 39] = [
    ("renamed", "Key renamed."),
    ("deactivated", "Key deactivated. Requests with it are now rejected."),
    ("reactivated", "Key reactivated."),
    ("still-paused", "Key reactivated, but still paused. Resume it when you are ready."),
    ("resumed", "Key resumed."),
    ("previous-revoked", "Old secret revoked."),
    ("tickets-invalidated", "Tickets invalidated. New ones work."),
    ("restricted", "Restrictions saved. They apply from the next request."),
    ("created-before", "This form was already sent, so it created nothing more. A secret is shown only once."),
    (
        "rotated-before",
        "This form was already sent, so the key was not rotated again. A secret is shown only once. If you didn’t save it, \
         rotate the key again.",
    ),
    ("deleted", "Key deleted."),
    ("saved", "Saved. The change takes effect as soon as all parts of the service are available again."),
    ("alerts", "Alerts saved."),
    ("channel-added", "Channel added. Send a test alert to see that it works."),
    (
        "channel-before",
        "This form was already sent, so nothing changed again. A secret is shown only once. If you didn’t save it, rotate it again.",
    ),
    ("channel-deleted", "Channel deleted."),
    ("alert-queued", "Alert queued. Reload this page to see whether it arrived."),
    ("channel-saved", "Channel saved."),
    ("channel-on", "Channel turned on. It gets new alerts. Older ones can be sent again."),
    ("channel-limit", "Your account has as many channels as it may have. Delete one to add another."),
    (
        "token-before",
        "This form was already sent, so it created nothing more. A token is shown only once. If you didn’t save it, revoke it and create another.",
    ),
    ("token-limit", "Your account has as many tokens as it may have. Revoke one to create another."),
    ("token-revoked", "Token revoked. Programs with it no longer have access."),
    ("tokens-resume", "Saved. Tokens with the scope keys:resume can now resume paused keys."),
    ("tokens-no-resume", "Saved. Tokens can’t resume paused keys."),
    ("password", "Password changed. Your other devices are signed out."),
    ("email", "Email changed."),
    ("session", "Device signed out."),
    ("sessions", "All other devices signed out."),
    ("passkey", "Passkey added. You can now sign in with it."),
    ("passkey-deleted", "Passkey removed."),
    ("linked", "Account linked. You can now sign in with it."),
    ("linked-before", "This account was already linked. Nothing changed."),
    ("unlinked", "Account unlinked."),
    ("device", "Browser forgotten."),
    ("limit-requested", "Request sent. You’ll find the answer on this page."),
    ("two-factor-off", "Two-factor authentication is off."),
    ("signed-out", "You’re signed out."),
    ("account-deleted", "Your account, its keys and its history were deleted."),
];

/// The visitor of a page, signed in or not.
pub(crate) struct Visitor {
    pub(crate) session_cookie: SessionCookie,
    pub(crate) member: Option<AuthenticatedAccount>,
    /// Why the session was not looked up. Public pages treat the visitor as signed out.
    lookup_error: Option<PortalError>,
    notice: Option<Notice>,
}

impl<S: PageState> FromRequestParts<S> for Visitor {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PortalError> {
        let session_cookie = SessionCookie::from_headers(&parts.headers);
        let client = parts.extensions.get::<Client>().ok_or(PortalError::Unavailable)?;
        let (member, lookup_error) = match state.find_member(&session_cookie, client).await {
            Ok(member) => (member, None),
            Err(error @ (PortalError::Throttled(_) | PortalError::Unavailable)) => (None, Some(error)),
            Err(error) => return Err(error),
        };
        Ok(Self { session_cookie, member, lookup_error, notice: notice_from_query(parts) })
    }
}

fn notice_from_query(parts: &Parts) -> Option<Notice> {
    let notice_name = parts.uri.query()?.strip_prefix("done=")?;
    NOTICES.iter().find(|(name, _)| *name == notice_name).map(|(_, text)| Notice(text))
}

impl Visitor {
    /// Loads the visitor of an error page. While PostgreSQL is unavailable, the visitor is anonymous.
    pub(crate) async fn load_or_anonymous(
        state: &impl PageState,
        session_cookie: SessionCookie,
        client: Option<Client>,
    ) -> Self {
        let member = match client {
            Some(client) => state.find_member(&session_cookie, &client).await.unwrap_or(None),
            None => None,
        };
        Self { session_cookie, member, lookup_error: None, notice: None }
    }

    /// A visitor who was signed in by the request that gets the page.
    pub(crate) fn signed_in(session_cookie: SessionCookie, member: AuthenticatedAccount) -> Self {
        Self { session_cookie, member: Some(member), lookup_error: None, notice: None }
    }

    pub(crate) fn frame(&self, pages: &PublicPages, title: &str, tab: Tab) -> PageFrame {
        PageFrame {
            title: title.to_owned(),
            tab,
            member_email: self.member.as_ref().map(|member| member.account.email.clone()),
            csrf_token: self.session_cookie.csrf_token(),
            notice: self.notice,
            banner: pages.host.banner(),
            contact: pages.settings.contact.clone(),
            has_terms: pages.legal_pages.terms.is_some(),
            has_privacy: pages.legal_pages.privacy.is_some(),
            signup_open: pages.settings.signup_open,
            seo: None,
        }
    }

    /// The frame of a page that search engines may index.
    pub(crate) fn public_frame(
        &self,
        pages: &PublicPages,
        title: &str,
        tab: Tab,
        description: &str,
        path: &str,
    ) -> PageFrame {
        let base_url = pages.settings.base_url.clone();
        let seo = SeoMetadata { description: description.trim().to_owned(), path: path.to_owned(), base_url };
        PageFrame { seo: Some(seo), ..self.frame(pages, title, tab) }
    }

    /// Renders a page, and sets the session cookie that its forms need.
    pub(crate) fn render(&self, portal: &Portal, page: &impl Template) -> Response {
        let mut response = render_page(page);
        if self.session_cookie.is_new() {
            response
                .headers_mut()
                .append(SET_COOKIE, self.session_cookie.to_set_cookie(portal.session_idle_timeout_s()));
        }
        response
    }
}

/// The signed-in member. Other visitors are redirected to the sign-in page.
pub(crate) struct CurrentMember {
    visitor: Visitor,
    pub(crate) account: Account,
    pub(crate) session_id: i64,
    /// Whether the member confirmed this session in the last five minutes.
    pub(crate) is_confirmed: bool,
    /// Whether the member signed in or confirmed this session recently.
    pub(crate) is_recent: bool,
    pub(crate) has_two_factor: bool,
}

impl FromRequestParts<Arc<Portal>> for CurrentMember {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, PortalError> {
        let mut visitor = Visitor::from_request_parts(parts, portal).await?;
        if let Some(error) = visitor.lookup_error.take() {
            return Err(error);
        }
        let AuthenticatedAccount { account, session_id, is_confirmed, is_recent, has_two_factor } = visitor
            .member
            .clone()
            .ok_or_else(|| PortalError::SignInNeeded(NextPath::after_request(&parts.method, parts.uri.path())))?;
        let is_setup = ["/account", "/signout"].iter().any(|start| parts.uri.path().starts_with(start));
        if portal.settings.requires_two_factor && !has_two_factor && !is_setup {
            return Err(PortalError::TwoFactorRequired);
        }
        Ok(Self { visitor, account, session_id, is_confirmed, is_recent, has_two_factor })
    }
}

impl CurrentMember {
    pub(crate) fn frame(&self, portal: &Portal, title: &str, tab: Tab) -> PageFrame {
        self.visitor.frame(&portal.public_pages, title, tab)
    }

    /// Whether forms ask for the password. With two-factor authentication, the session is confirmed on a separate page.
    pub(crate) fn needs_password(&self) -> bool {
        !self.is_confirmed && !self.has_two_factor
    }

    /// Requires a confirmation if the account has two-factor authentication. It may have been turned on since this began.
    pub(crate) fn require_second_factor(&self, next: &str) -> Result<(), PortalError> {
        let needs_confirmation = self.has_two_factor && !self.is_confirmed;
        if needs_confirmation { Err(PortalError::ConfirmationNeeded(next.to_owned())) } else { Ok(()) }
    }

    /// Requires that the member signed in or confirmed the session recently. Otherwise the page for that leads back to `next`.
    pub(crate) fn require_recent(&self, next: &str) -> Result<(), PortalError> {
        if self.is_recent { Ok(()) } else { Err(PortalError::ConfirmationNeeded(next.to_owned())) }
    }

    pub(crate) fn session_cookie(&self) -> &SessionCookie {
        &self.visitor.session_cookie
    }

    pub(crate) const fn visitor(&self) -> &Visitor {
        &self.visitor
    }

    /// The member in the password queue.
    pub(crate) fn password_requester(&self) -> Requester {
        Requester::Owner(email_digest(&self.account.email))
    }

    /// The actor of changes by this member.
    pub(crate) fn actor(&self) -> Actor {
        Actor::Owner(self.account.id)
    }
}

/// Renders a page.
pub(crate) fn render_page(page: &impl Template) -> Response {
    match page.render() {
        // Copied, because the buffer may be twice as large as the page, and waits with it for a slow client.
        Ok(text) => Html(Bytes::copy_from_slice(text.as_bytes())).into_response(),
        Err(error) => {
            tracing::error!(error = %causes(&error), "page rendering failed");
            http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Redirects to another page, which shows a notice.
pub(crate) fn redirect_with_notice(path: &str, notice: &'static str) -> Response {
    Redirect::to(&format!("{path}?done={notice}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_notices_are_shown() {
        let has_notice = |uri: &str| {
            let (parts, ()) = http::Request::get(uri).body(()).expect("request is valid").into_parts();
            notice_from_query(&parts).is_some()
        };
        assert!(has_notice("/keys?done=resumed"));
        for invalid in ["/keys", "/keys?done=", "/keys?done=%3Cb%3E", "/keys?x=1&done=resumed"] {
            assert!(!has_notice(invalid), "{invalid}");
        }
    }
}
