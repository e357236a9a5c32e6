//! Normalizes the path of a request before it is routed.

use http::Uri;

/// Decodes percent-encoded unreserved characters of the path: `/api/v1/%69p` equals `/api/v1/ip` (RFC 3986, section
/// 6.2.2.2). Other encoded characters, such as `%2F`, are reserved and stay encoded.
pub(super) fn decode_unreserved(uri: &mut Uri) {
    if !uri.path().contains('%') {
        return;
    }
    let mut target = decoded_path(uri.path());
    if let Some(query) = uri.query() {
        target.push('?');
        target.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = target.parse().ok();
    if let Ok(decoded) = Uri::from_parts(parts) {
        *uri = decoded;
    }
}

fn decoded_path(path: &str) -> String {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((plain, after)) = rest.split_once('%') {
        decoded.push_str(plain);
        match after.split_at_checked(2).and_then(|(digits, after)| Some((unreserved(digits)?, after))) {
            Some((character, after)) => {
                decoded.push(character);
                rest = after;
            }
            None => {
                decoded.push('%');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

/// The unreserved character (RFC 3986, section 2.3) with this code.
fn unreserved(hex_digits: &str) -> Option<char> {
    let code = hex_digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(hex_digits)?;
    let character = char::from(u8::from_str_radix(code, 16).ok()?);
    (character.is_ascii_alphanumeric() || "-._~".contains(character)).then_some(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> String {
        let mut uri: Uri = text.parse().expect("valid URI");
        decode_unreserved(&mut uri);
        uri.to_string()
    }

    #[test]
    fn encoded_unreserved_characters_are_decoded_once() {
        assert_eq!(decoded("/api/v1/%69p?scope=%69p"), "/api/v1/ip?scope=%69p");
        assert_eq!(decoded("/%61%2D%2e%5F%7e%5a%30"), "/a-._~Z0");
        assert_eq!(decoded("/api/v1/%2569p"), "/api/v1/%2569p");
        assert_eq!(decoded("http://ip.example.com/api/v1/i%70"), "http://ip.example.com/api/v1/ip");
    }

    #[test]
    fn other_encoded_characters_are_unchanged() {
        for path in ["/", "/api%2Fv1/ip", "/%2f%3F%23%25%20%00%C3%A9", "/%", "/%6", "/%zz", "/%+6", "/?x=%69"] {
            assert_eq!(decoded(path), path);
        }
    }
}
