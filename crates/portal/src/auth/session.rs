//! Opens sessions, for every way to sign in.

use axum::response::{IntoResponse, Redirect, Response};
use http::HeaderMap;
use http::header::{SET_COOKIE, USER_AGENT};
use ipseity_store::{NewSession, SessionStart};
use sha2::{Digest, Sha256};

use crate::auth::next_path::NextPath;
use crate::auth::session_cookie::{self, SecretToken, SessionCookie};
use crate::auth::sign_in_counts::SignInOutcome;
use crate::error::PortalError;
use crate::state::Portal;

/// A session that a response opens in its browser.
pub(crate) struct OpenedSession {
    pub(crate) id: i64,
    pub(crate) cookie: SessionCookie,
    device_token: SecretToken,
}

impl OpenedSession {
    /// Sets the device cookie. The session cookie is set by the page, like that of every new visitor.
    pub(crate) fn set_device_cookie(&self, response: &mut Response) {
        response.headers_mut().append(SET_COOKIE, session_cookie::device_set_cookie(&self.device_token));
    }
}

impl Portal {
    /// Opens a session and redirects to `next` or to the keys.
    pub(crate) async fn open_session(
        &self,
        account_id: i64,
        headers: &HeaderMap,
        start: SessionStart,
        next: &NextPath,
    ) -> Result<Response, PortalError> {
        let session = self.start_session(account_id, headers, start).await?;
        let mut response = Redirect::to(next.as_deref().unwrap_or("/keys")).into_response();
        response.headers_mut().append(SET_COOKIE, session.cookie.to_set_cookie(self.session_idle_timeout_s()));
        session.set_device_cookie(&mut response);
        Ok(response)
    }

    /// Opens a session with a new cookie. The previous session ends, which prevents session fixation. After a link the browser gets a
    /// new device token too, because others may have the old one.
    pub(crate) async fn start_session(
        &self,
        account_id: i64,
        headers: &HeaderMap,
        start: SessionStart,
    ) -> Result<OpenedSession, PortalError> {
        let known_device = session_cookie::device_token(headers).filter(|_| start != SessionStart::Link);
        let device_token = known_device.unwrap_or_else(SecretToken::generate);
        let cookie = SessionCookie::generate();
        self.store.sessions().end_by_digest(&SessionCookie::from_headers(headers).digest()).await?;
        let session = NewSession {
            account_id,
            digest: &cookie.digest(),
            label: &session_label(headers),
            device_digest: &device_token.digest(),
            start,
        };
        let id = self.store.sessions().open(&session).await?;
        self.sign_in_counts.inc(SignInOutcome::Succeeded);
        self.secret_lookups.remember(cookie.digest());
        Ok(OpenedSession { id, cookie, device_token })
    }

    /// Makes the browser that gets this response a known device of the account, with a new token.
    pub(crate) async fn remember_device(
        &self,
        account_id: i64,
        headers: &HeaderMap,
        response: &mut Response,
    ) -> Result<(), PortalError> {
        let device_token = SecretToken::generate();
        self.store.devices().remember(account_id, &device_token.digest(), &session_label(headers)).await?;
        response.headers_mut().append(SET_COOKIE, session_cookie::device_set_cookie(&device_token));
        Ok(())
    }
}

/// Key of an email in a throttle. Two spellings of the email of an account have the same key if the email is as
/// [`EmailAddress`](ipseity_domain::account::EmailAddress) writes it. The email itself is not stored.
pub(crate) fn email_digest(email: &str) -> [u8; 32] {
    Sha256::digest(email).into()
}

/// Label of a session in the list of sessions: browser and system, from the user agent.
pub(crate) fn session_label(headers: &HeaderMap) -> String {
    let user_agent = headers.get(USER_AGENT).and_then(|user_agent| user_agent.to_str().ok()).unwrap_or_default();
    let first_match = |candidates: &[(&'static str, &'static str)]| {
        candidates.iter().find(|(pattern, _)| user_agent.contains(pattern)).map(|(_, name)| *name)
    };
    // The order matters: most user agents also name other browsers.
    let browser = first_match(&[
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
        ("curl/", "curl"),
    ]);
    let system = first_match(&[
        ("Android", "Android"),
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Windows", "Windows"),
        ("Mac OS", "macOS"),
        ("CrOS", "ChromeOS"),
        ("Linux", "Linux"),
    ]);
    match (browser, system) {
        (Some(browser), Some(system)) => format!("{browser} on {system}"),
        (Some(name), None) | (None, Some(name)) => name.to_owned(),
        (None, None) => "Unknown browser".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use ipseity_domain::account::EmailAddress;

    use super::*;

    #[test]
    fn session_label_names_browser_and_system() {
        for (user_agent, expected) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox on Linux"),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15",
                "Safari on macOS",
            ),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (Linux; Android 15) AppleWebKit/537.36 Chrome/140.0.0.0 Mobile Safari/537.36",
                "Chrome on Android",
            ),
            ("curl/8.5.0", "curl"),
            ("<script>", "Unknown browser"),
        ] {
            let headers =
                [(USER_AGENT, HeaderValue::from_str(user_agent).expect("header value is valid"))].into_iter().collect();
            assert_eq!(session_label(&headers), expected);
        }
        assert_eq!(session_label(&HeaderMap::new()), "Unknown browser");
    }

    #[test]
    fn email_digest_ignores_case() {
        let digest = |text: &str| email_digest(EmailAddress::parse(text).expect("email is valid").as_str());
        assert_eq!(digest("Ada@Ipseity.example"), digest("ada@ipseity.EXAMPLE"));
        assert_ne!(digest("ada@ipseity.example"), digest("bob@ipseity.example"));
    }
}
