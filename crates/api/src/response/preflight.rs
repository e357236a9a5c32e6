//! The response to a CORS preflight.

use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    AUTHORIZATION, CONTENT_TYPE,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// These headers are always allowed. Some browser clients set Content-Type on a GET.
const ALWAYS_ALLOWED: &str = "Authorization, Content-Type";
/// Maximum length of the list of allowed headers. Names after it are left out.
const ALLOWED_HEADERS_BYTES_MAX: usize = 2048;

/// Allows every header that the browser asks for. Libraries for tracing add headers to all requests of a page, and a
/// header that is not allowed would make the whole call fail.
pub(crate) fn preflight_response(request_headers: &HeaderMap) -> Response {
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, OPTIONS")),
        (ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(request_headers)),
        (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400")),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

fn allowed_headers(request_headers: &HeaderMap) -> HeaderValue {
    let requested_names = request_headers
        .get_all(ACCESS_CONTROL_REQUEST_HEADERS)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| *name != AUTHORIZATION && *name != CONTENT_TYPE);
    let mut allowed = ALWAYS_ALLOWED.to_owned();
    for name in requested_names {
        if allowed.len() + ", ".len() + name.as_str().len() > ALLOWED_HEADERS_BYTES_MAX {
            break;
        }
        allowed.push_str(", ");
        allowed.push_str(name.as_str());
    }
    HeaderValue::try_from(allowed).unwrap_or(HeaderValue::from_static(ALWAYS_ALLOWED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed_for(lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCESS_CONTROL_REQUEST_HEADERS, line.parse().expect("valid header"));
        }
        allowed_headers(&headers).to_str().expect("ASCII").to_owned()
    }

    #[test]
    fn preflight_allows_the_requested_headers() {
        assert_eq!(allowed_for(&[]), "Authorization, Content-Type");
        assert_eq!(allowed_for(&["authorization,content-type"]), "Authorization, Content-Type");
        assert_eq!(
            allowed_for(&["authorization, traceparent", "X-Requested-With"]),
            "Authorization, Content-Type, traceparent, x-requested-with"
        );
    }

    #[test]
    fn preflight_repeats_only_header_names_up_to_a_maximum_length() {
        assert_eq!(
            allowed_for(&["x y, , a:b, <script>, \"q\", é, x-good, *"]),
            "Authorization, Content-Type, x-good, *"
        );
        let many = (0..1000).map(|number| format!("x-{number}")).collect::<Vec<_>>().join(",");
        let allowed = allowed_for(&[&many]);
        assert!(allowed.len() <= ALLOWED_HEADERS_BYTES_MAX && allowed.ends_with(|end: char| end.is_ascii_digit()));
        let long = "x".repeat(ALLOWED_HEADERS_BYTES_MAX);
        assert_eq!(allowed_for(&[&long]), "Authorization, Content-Type");
    }
}
