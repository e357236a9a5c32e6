//! Finds the API key in a request. The `Authorization` header takes precedence over the query.

use std::borrow::Cow;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use http::request::Parts;
use ipseity_domain::{KEY_PREFIX, TEST_KEY_PREFIX, TICKET_PREFIX};

/// Returns the token of the first `Authorization` header if it is a bearer token, otherwise the first `key`
/// parameter. An empty key counts as missing.
pub(crate) fn find_api_key(parts: &Parts) -> Option<Cow<'_, str>> {
    find_header_key(parts).map(Cow::Borrowed).or_else(|| query_param(parts, "key")).filter(|key| !key.is_empty())
}

/// Returns the token of the first `Authorization` header if it is a bearer token.
pub(crate) fn find_header_key(parts: &Parts) -> Option<&str> {
    parts.headers.get(AUTHORIZATION).and_then(|value| bearer_token(value.as_bytes()))
}

/// Whether a request has a key, valid or not.
pub(crate) fn has_key(parts: &Parts) -> bool {
    find_api_key(parts).is_some() || has_key_without_bearer(parts)
}

/// Whether the first `Authorization` header has a key that [`find_api_key`] does not read, because the scheme is
/// missing, is another one, or is not followed by a space.
pub(crate) fn has_key_without_bearer(parts: &Parts) -> bool {
    let value = parts.headers.get(AUTHORIZATION).map_or(&[][..], HeaderValue::as_bytes);
    let prefixes = [KEY_PREFIX, TEST_KEY_PREFIX, TICKET_PREFIX];
    let is_key = |word: &[u8]| prefixes.iter().any(|prefix| word.starts_with(prefix.as_bytes()));
    value.split(u8::is_ascii_whitespace).any(is_key)
}

/// Returns the first value of a query parameter.
pub(crate) fn query_param<'a>(parts: &'a Parts, name: &str) -> Option<Cow<'a, str>> {
    let query = parts.uri.query()?;
    form_urlencoded::parse(query.as_bytes()).find_map(|(key, value)| (key == name).then_some(value))
}

/// Returns the token of `Bearer <token>`. The scheme is case-insensitive (RFC 9110, section 11.1).
fn bearer_token(value: &[u8]) -> Option<&str> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    let token = token.trim_ascii();
    // A token that is not UTF-8 is an invalid key, not a missing one.
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then(|| str::from_utf8(token).unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn api_key_of(uri: &str, values: &[&str]) -> Option<String> {
        let mut request = Request::builder().uri(uri);
        for value in values {
            request = request.header(AUTHORIZATION, *value);
        }
        let (parts, ()) = request.body(()).expect("valid request").into_parts();
        find_api_key(&parts).map(Cow::into_owned)
    }

    #[test]
    fn authorization_header_overrides_the_key_parameter() {
        assert_eq!(api_key_of("/?key=q", &["Bearer h"]).as_deref(), Some("h"));
        assert_eq!(api_key_of("/?key=q", &["bEaReR h"]).as_deref(), Some("h"));
    }

    #[test]
    fn other_scheme_or_empty_token_counts_as_missing() {
        for value in ["Basic h", "Bearer", "Bearer ", "Bearer   ", "Bearerh", ""] {
            assert_eq!(api_key_of("/?key=q", &[value]).as_deref(), Some("q"), "{value:?}");
            assert_eq!(api_key_of("/", &[value]), None, "{value:?}");
        }
    }

    #[test]
    fn key_without_the_bearer_scheme_is_recognized() {
        let is_recognized = |value: &str| {
            let request = Request::builder().header(AUTHORIZATION, value).body(()).expect("valid request");
            has_key_without_bearer(&request.into_parts().0)
        };
        for value in ["ips_x", " ips_x ", "Bearer\tips_x", "Token ips_x", "Basic ips_x", "ipst_x", "ipt_x"] {
            assert!(is_recognized(value) && api_key_of("/", &[value]).is_none(), "{value:?}");
        }
        for value in ["", "Bearer", "Basic dXNlcjpwYXNz", "Token x", "IPS_x"] {
            assert!(!is_recognized(value), "{value:?}");
        }
    }

    #[test]
    fn first_of_several_keys_is_used() {
        assert_eq!(api_key_of("/?key=a&key=b", &[]).as_deref(), Some("a"));
        assert_eq!(api_key_of("/", &["Bearer a", "Bearer b"]).as_deref(), Some("a"));
        assert_eq!(api_key_of("/?key=&key=b", &[]), None);
    }

    #[test]
    fn key_parameter_is_percent_decoded() {
        assert_eq!(api_key_of("/?x=1&key=a%62c", &[]).as_deref(), Some("abc"));
    }
}
