//! Who looks at a page, and the page as it goes out.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::{Html, IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::request::Parts;
use ipseity_store::Account;

use crate::Portal;
use crate::auth::session_cookie::SessionCookie;
use crate::error::PortalError;
use crate::view::{Notice, PageFrame, SeoMetadata, Tab};

/// What a form has done, told on the page that it leads to: `?done=` and its name.
const NOTICES: [(&str, &str); 17] = [
    ("renamed", "The key has its new name."),
    ("deactivated", "The key is deactivated: it is refused from the next request on."),
    ("reactivated", "The key is active again."),
    ("still-paused", "The key is no longer deactivated, but it is still paused. Resume it when you are ready."),
    ("resumed", "The key is resumed: the next request is answered."),
    ("retired", "The old secret is refused from the next request on."),
    ("deleted", "The key is deleted."),
    ("saved", "Saved. A part of the service does not answer; the change is in force as soon as it does."),
    ("alerts", "Your choice of mails is saved."),
    ("password", "Your password is changed, and every other session has ended."),
    ("email", "Your e-mail address is changed."),
    ("session", "The session has ended."),
    ("sessions", "Every other session has ended."),
    ("passkey", "The passkey is ready: you can sign in with it from now on."),
    ("passkey-deleted", "The passkey is deleted."),
    ("signed-out", "You are signed out."),
    ("account-deleted", "Your account, its keys and its history are deleted."),
];

/// Whoever looks at a page, signed in or not.
pub(crate) struct Visitor {
    pub(crate) session_cookie: SessionCookie,
    pub(crate) member: Option<ipseity_store::AuthenticatedAccount>,
    notice: Option<Notice>,
}

impl FromRequestParts<Arc<Portal>> for Visitor {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, PortalError> {
        let session_cookie = SessionCookie::from_headers(&parts.headers);
        let member = if session_cookie.is_new() { None } else { portal.find_member(&session_cookie).await? };
        Ok(Self { session_cookie, member, notice: notice_from_query(parts) })
    }
}

fn notice_from_query(parts: &Parts) -> Option<Notice> {
    let notice_name = parts.uri.query()?.strip_prefix("done=")?;
    NOTICES.iter().find(|(name, _)| *name == notice_name).map(|(_, text)| Notice(text))
}

impl Visitor {
    /// Whoever makes a visit, for a page that tells what went wrong: while the store is away, a stranger.
    pub(crate) async fn load_or_anonymous(portal: &Portal, session_cookie: SessionCookie) -> Self {
        let member = match session_cookie.is_new() {
            true => None,
            false => portal.find_member(&session_cookie).await.unwrap_or(None),
        };
        Self { session_cookie, member, notice: None }
    }

    pub(crate) fn frame(&self, portal: &Portal, title: &str, tab: Tab) -> PageFrame {
        PageFrame {
            title: title.to_owned(),
            tab,
            member_email: self.member.as_ref().map(|member| member.account.email.clone()),
            csrf_token: self.session_cookie.csrf_token(),
            notice: self.notice,
            signup_open: portal.settings.signup_open,
            seo: None,
        }
    }

    /// The frame of a page that everybody may find and link to.
    pub(crate) fn public_frame(
        &self,
        portal: &Portal,
        title: &str,
        tab: Tab,
        description: &str,
        path: &str,
    ) -> PageFrame {
        let base_url = portal.settings.base_url.clone();
        let published = SeoMetadata { description: description.trim().to_owned(), path: path.to_owned(), base_url };
        PageFrame { seo: Some(published), ..self.frame(portal, title, tab) }
    }

    /// Shows a page, with the cookie that its forms need.
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

/// A signed-in member; whoever is not is sent to the door.
pub(crate) struct CurrentMember {
    visitor: Visitor,
    pub(crate) account: Account,
    pub(crate) session_id: i64,
}

impl FromRequestParts<Arc<Portal>> for CurrentMember {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, PortalError> {
        let visitor = Visitor::from_request_parts(parts, portal).await?;
        let ipseity_store::AuthenticatedAccount { account, session_id } =
            visitor.member.clone().ok_or(PortalError::NotSignedIn)?;
        Ok(Self { visitor, account, session_id })
    }
}

impl CurrentMember {
    pub(crate) fn frame(&self, portal: &Portal, title: &str, tab: Tab) -> PageFrame {
        self.visitor.frame(portal, title, tab)
    }

    pub(crate) fn session_cookie(&self) -> &SessionCookie {
        &self.visitor.session_cookie
    }

    /// Whose changes the store allows.
    pub(crate) fn actor(&self) -> ipseity_store::Actor {
        ipseity_store::Actor::Owner(self.account.id)
    }
}

/// A page as an answer.
pub(crate) fn render_page(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a page could not be rendered");
            http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// On to another page, which tells what was done.
pub(crate) fn redirect_with_notice(path: &str, notice: &'static str) -> Response {
    Redirect::to(&format!("{path}?done={notice}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_notices_are_shown() {
        let has_notice = |uri: &str| {
            let (parts, ()) = http::Request::get(uri).body(()).expect("a request").into_parts();
            notice_from_query(&parts).is_some()
        };
        assert!(has_notice("/keys?done=resumed"));
        for invalid in ["/keys", "/keys?done=", "/keys?done=%3Cb%3E", "/keys?x=1&done=resumed"] {
            assert!(!has_notice(invalid), "{invalid}");
        }
    }
}
