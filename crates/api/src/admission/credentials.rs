//! Finds the API key in a request. The `Authorization` header takes precedence over the query.

use std::borrow::Cow;

use http::header::AUTHORIZATION;
use http::request::Parts;

/// Returns the token of the first `Authorization` header if it is a bearer token, otherwise the first `key`
/// parameter. An empty key counts as missing.
pub(crate) fn find_api_key(parts: &Parts) -> Option<Cow<'_, str>> {
    let token = parts.headers.get(AUTHORIZATION).and_then(|value| bearer_token(value.as_bytes()));
    token.map(Cow::Borrowed).or_else(|| query_param(parts, "key")).filter(|key| !key.is_empty())
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
