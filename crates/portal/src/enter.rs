//! Opening a session: the same for every way to sign in.

use axum::response::{IntoResponse, Redirect, Response};
use domain::account::Email;
use http::HeaderMap;
use http::header::{SET_COOKIE, USER_AGENT};
use sha2::{Digest, Sha256};

use crate::Portal;
use crate::problem::Problem;
use crate::visit::{self, Secret, Visit};

impl Portal {
    /// Opens a session under a new secret and sends the member to their keys. The visit from before ends: nobody who knew its secret has gained
    /// anything.
    pub(crate) async fn enter(&self, account_id: i64, headers: &HeaderMap) -> Result<Response, Problem> {
        let visit = Visit::open();
        self.store.end_session_of(&Visit::of(headers).digest()).await?;
        self.store.open_session(account_id, &visit.digest(), &label(headers)).await?;
        let mut response = Redirect::to("/keys").into_response();
        response.headers_mut().append(SET_COOKIE, visit.cookie(self.idle_max_s()));
        let device = visit::device(headers).unwrap_or_else(Secret::mint);
        self.store.remember_device(account_id, &device.digest()).await?;
        response.headers_mut().append(SET_COOKIE, visit::device_cookie(&device));
        Ok(response)
    }
}

/// Names an e-mail address in a throttle, whatever its letters' case; the address itself is not kept.
pub(crate) fn digest_of(email: &Email) -> [u8; 32] {
    Sha256::digest(email.as_str().to_lowercase()).into()
}

/// What a session is called in the list of sessions: as much of the browser's own words as tells two devices of one owner apart.
fn label(headers: &HeaderMap) -> String {
    let words = headers.get(USER_AGENT).and_then(|words| words.to_str().ok()).unwrap_or_default();
    let first = |known: &[(&'static str, &'static str)]| {
        known.iter().find(|(word, _)| words.contains(word)).map(|(_, name)| *name)
    };
    // In this order: most browsers also claim to be others.
    let browser = first(&[
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
        ("curl/", "curl"),
    ]);
    let system = first(&[
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
        (None, None) => "A browser".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_session_is_called_by_browser_and_system() {
        for (words, called) in [
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
            ("<script>", "A browser"),
        ] {
            let headers = [(USER_AGENT, HeaderValue::from_str(words).expect("a value"))].into_iter().collect();
            assert_eq!(label(&headers), called);
        }
        assert_eq!(label(&HeaderMap::new()), "A browser");
    }

    #[test]
    fn an_address_is_throttled_whatever_its_letters_case() {
        let of = |text: &str| digest_of(&Email::parse(text).expect("an address"));
        assert_eq!(of("Ada@House.example"), of("ada@house.EXAMPLE"));
        assert_ne!(of("ada@house.example"), of("bob@house.example"));
    }
}
