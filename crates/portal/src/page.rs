//! Who looks at a page, and the page as it goes out.

use std::sync::Arc;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::{Html, IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::request::Parts;
use store::Account;

use crate::Portal;
use crate::problem::Problem;
use crate::view::{Frame, Notice, Published, Tab};
use crate::visit::Visit;

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
    pub(crate) visit: Visit,
    pub(crate) member: Option<store::Member>,
    notice: Option<Notice>,
}

impl FromRequestParts<Arc<Portal>> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, Problem> {
        let visit = Visit::of(&parts.headers);
        let member = if visit.is_new() { None } else { portal.find_member(&visit).await? };
        Ok(Self { visit, member, notice: notice(parts) })
    }
}

fn notice(parts: &Parts) -> Option<Notice> {
    let done = parts.uri.query()?.strip_prefix("done=")?;
    NOTICES.iter().find(|(name, _)| *name == done).map(|(_, sentence)| Notice(sentence))
}

impl Visitor {
    /// Whoever makes a visit, for a page that tells what went wrong: while the store is away, a stranger.
    pub(crate) async fn find(portal: &Portal, visit: Visit) -> Self {
        let member = match visit.is_new() {
            true => None,
            false => portal.find_member(&visit).await.unwrap_or(None),
        };
        Self { visit, member, notice: None }
    }

    pub(crate) fn frame(&self, portal: &Portal, title: &str, tab: Tab) -> Frame {
        Frame {
            title: title.to_owned(),
            tab,
            member: self.member.as_ref().map(|member| member.account.email.clone()),
            csrf: self.visit.token(),
            notice: self.notice,
            signup_open: portal.settings.signup_open,
            published: None,
        }
    }

    /// The frame of a page that everybody may find and link to.
    pub(crate) fn public_frame(&self, portal: &Portal, title: &str, tab: Tab, description: &str, path: &str) -> Frame {
        let base_url = portal.settings.base_url.clone();
        let published = Published { description: description.trim().to_owned(), path: path.to_owned(), base_url };
        Frame { published: Some(published), ..self.frame(portal, title, tab) }
    }

    /// Shows a page, with the cookie that its forms need.
    pub(crate) fn show(&self, portal: &Portal, page: &impl Template) -> Response {
        let mut response = show(page);
        if self.visit.is_new() {
            response.headers_mut().append(SET_COOKIE, self.visit.cookie(portal.idle_max_s()));
        }
        response
    }
}

/// A signed-in member; whoever is not is sent to the door.
pub(crate) struct Member {
    visitor: Visitor,
    pub(crate) account: Account,
    pub(crate) session: i64,
}

impl FromRequestParts<Arc<Portal>> for Member {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, Problem> {
        let visitor = Visitor::from_request_parts(parts, portal).await?;
        let store::Member { account, session_id } = visitor.member.clone().ok_or(Problem::SignIn)?;
        Ok(Self { visitor, account, session: session_id })
    }
}

impl Member {
    pub(crate) fn frame(&self, portal: &Portal, title: &str, tab: Tab) -> Frame {
        self.visitor.frame(portal, title, tab)
    }

    pub(crate) fn visit(&self) -> &Visit {
        &self.visitor.visit
    }

    /// Whose changes the store allows.
    pub(crate) fn by(&self) -> store::By {
        store::By::Owner(self.account.id)
    }
}

/// A page as an answer.
pub(crate) fn show(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a page could not be rendered");
            http::StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// On to another page, which tells what was done.
pub(crate) fn done(path: &str, what: &'static str) -> Response {
    Redirect::to(&format!("{path}?done={what}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_one_of_ours_or_none() {
        let asked = |uri: &str| {
            let (parts, ()) = http::Request::get(uri).body(()).expect("a request").into_parts();
            notice(&parts).is_some()
        };
        assert!(asked("/keys?done=resumed"));
        for odd in ["/keys", "/keys?done=", "/keys?done=%3Cb%3E", "/keys?x=1&done=resumed"] {
            assert!(!asked(odd), "{odd}");
        }
    }
}
