//! A browser's visit: the one cookie that names it, and the token that its forms must carry.
//!
//! The cookie's value is 256 random bits. PostgreSQL keeps its digest only, and only for those who signed in; a stranger's value is kept
//! nowhere. The token is derived from the value, so that whoever cannot read the cookie cannot make one, and a new cookie makes old forms stale.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The session's cookie. `__Host-` makes browsers refuse it from anybody but this host, over TLS.
const SESSION: &str = "__Host-ipseity";
/// The cookie of a browser that signed in before.
const DEVICE: &str = "__Host-device";
const SECRET_BYTES: usize = 32;
/// A year: as long as a browser counts as known.
const DEVICE_S: u64 = 31_536_000;

/// 256 random bits as hexadecimal text; no `Debug`, so that it cannot be logged by accident.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Draws a new one.
    pub(crate) fn mint() -> Self {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the system gives random bytes");
        Self(hex(&bytes))
    }

    /// Reads one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let plain =
            text.len() == 2 * SECRET_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| Self(text.to_owned()))
    }

    /// What is stored of it.
    pub(crate) fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The text itself, for the one who is to have it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// A browser's visit.
#[derive(Clone)]
pub(crate) struct Visit {
    secret: Secret,
    /// The browser does not have the cookie yet.
    is_new: bool,
}

impl Visit {
    /// The visit that a request belongs to, or a new one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        cookie(headers, SESSION).map_or_else(Self::open, |secret| Self { secret, is_new: false })
    }

    /// A new visit; signing in and out begins one, so that nobody can know its secret from before.
    pub(crate) fn open() -> Self {
        Self { secret: Secret::mint(), is_new: true }
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Names the visit in PostgreSQL.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.secret.digest()
    }

    /// The token of this visit's forms.
    pub(crate) fn token(&self) -> String {
        let digest = Sha256::new_with_prefix("form:").chain_update(self.secret.expose()).finalize();
        hex(&digest[..16])
    }

    /// Whether a form of this visit carried its token.
    pub(crate) fn allows(&self, token: &str) -> bool {
        !self.is_new && self.token().as_bytes().ct_eq(token.as_bytes()).into()
    }

    /// The cookie, for as long as an idle session lasts.
    pub(crate) fn cookie(&self, idle_max_s: u64) -> HeaderValue {
        set_cookie(SESSION, &self.secret, idle_max_s)
    }
}

/// The secret of a browser that signed in before.
pub(crate) fn device(headers: &HeaderMap) -> Option<Secret> {
    cookie(headers, DEVICE)
}

/// The cookie that makes a browser known.
pub(crate) fn device_cookie(secret: &Secret) -> HeaderValue {
    set_cookie(DEVICE, secret, DEVICE_S)
}

fn set_cookie(name: &str, secret: &Secret, lasts_s: u64) -> HeaderValue {
    let value = secret.expose();
    HeaderValue::try_from(format!("{name}={value}; Path=/; Max-Age={lasts_s}; Secure; HttpOnly; SameSite=Lax"))
        .expect("hexadecimal digits and our own text")
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<Secret> {
    let pairs = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(';'));
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(found, _)| *found == name)
        .and_then(|(_, value)| Secret::parse(value))
}

/// Bytes as hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_cookie(line: &str) -> HeaderMap {
        [(COOKIE, HeaderValue::from_str(line).expect("a value"))].into_iter().collect()
    }

    #[test]
    fn a_visit_is_known_again_by_its_cookie_and_by_nothing_else() {
        let visit = Visit::open();
        let line = visit.cookie(60).to_str().expect("text").to_owned();
        assert!(line.ends_with("; Path=/; Max-Age=60; Secure; HttpOnly; SameSite=Lax"));
        let sent = line.split(';').next().expect("a pair");
        let again = Visit::of(&with_cookie(&format!("a=b; {sent}; c=d")));
        assert!(again.digest() == visit.digest() && !again.is_new());
        for odd in ["__Host-ipseity=", "__Host-ipseity=XYZ", "ipseity=00", &sent.to_uppercase(), &format!("x{sent}")] {
            assert!(Visit::of(&with_cookie(odd)).is_new(), "{odd}");
        }
    }

    #[test]
    fn a_form_is_allowed_by_its_own_visits_token_alone() {
        let known = |visit: &Visit| Visit { secret: visit.secret.clone(), is_new: false };
        let (own, other) = (Visit::open(), Visit::open());
        assert!(known(&own).allows(&own.token()));
        for token in ["", &other.token(), &own.token()[1..], own.secret.expose()] {
            assert!(!known(&own).allows(token));
        }
        assert!(!own.allows(&own.token()), "a browser without the cookie sent no form of ours");
        assert!(!own.token().contains(&own.secret.expose()[..8]));
    }
}
