//! Finding the key in a request. The header wins; the query is the fallback.

use std::borrow::Cow;

use http::header::AUTHORIZATION;
use http::request::Parts;

/// The key that a request presents: of the first Authorization line if that is a bearer token, else of the first `key` in the query. An empty
/// one counts as absent.
pub(crate) fn presented(parts: &Parts) -> Option<Cow<'_, str>> {
    let bearer = parts.headers.get(AUTHORIZATION).and_then(|line| bearer(line.as_bytes()));
    bearer.map(Cow::Borrowed).or_else(|| query(parts, "key")).filter(|key| !key.is_empty())
}

/// The first value of a query parameter.
pub(crate) fn query<'a>(parts: &'a Parts, name: &str) -> Option<Cow<'a, str>> {
    let query = parts.uri.query()?;
    form_urlencoded::parse(query.as_bytes()).find_map(|(key, value)| (key == name).then_some(value))
}

/// The token of `Bearer <token>`; the scheme's letter case does not matter (RFC 9110, section 11.1).
fn bearer(line: &[u8]) -> Option<&str> {
    let (scheme, token) = line.split_at_checked(b"bearer ".len())?;
    let token = token.trim_ascii();
    // Bytes that are no text cannot be a key, and yet are one that was presented.
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then(|| str::from_utf8(token).unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn found(uri: &str, lines: &[&str]) -> Option<String> {
        let mut request = Request::builder().uri(uri);
        for line in lines {
            request = request.header(AUTHORIZATION, *line);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        presented(&parts).map(Cow::into_owned)
    }

    #[test]
    fn the_header_wins_over_the_query() {
        assert_eq!(found("/?key=q", &["Bearer h"]).as_deref(), Some("h"));
        assert_eq!(found("/?key=q", &["bEaReR h"]).as_deref(), Some("h"));
    }

    #[test]
    fn another_scheme_or_an_empty_token_counts_as_absent() {
        for line in ["Basic h", "Bearer", "Bearer ", "Bearer   ", "Bearerh", ""] {
            assert_eq!(found("/?key=q", &[line]).as_deref(), Some("q"), "{line:?}");
            assert_eq!(found("/", &[line]), None, "{line:?}");
        }
    }

    #[test]
    fn of_several_the_first_counts() {
        assert_eq!(found("/?key=a&key=b", &[]).as_deref(), Some("a"));
        assert_eq!(found("/", &["Bearer a", "Bearer b"]).as_deref(), Some("a"));
        assert_eq!(found("/?key=&key=b", &[]), None);
    }

    #[test]
    fn the_query_is_decoded() {
        assert_eq!(found("/?x=1&key=a%62c", &[]).as_deref(), Some("abc"));
    }
}
