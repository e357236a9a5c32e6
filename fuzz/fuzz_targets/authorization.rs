//! Arbitrary Authorization lines and an arbitrary query: the key that is found is the first one's, and never empty.
#![no_main]

use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Uri};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/api/src/credentials.rs"]
mod credentials;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.split(|byte| *byte == b'\n');
    let query = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let mut request = Request::new(());
    if let Ok(uri) = format!("/api/v1/ip?{query}").parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    for line in parts {
        let Ok(value) = HeaderValue::from_bytes(line) else { continue };
        request.headers_mut().append(AUTHORIZATION, value);
    }
    let (mut parts, ()) = request.into_parts();
    let found = credentials::presented(&parts).map(|key| key.into_owned());
    assert!(found.as_ref().is_none_or(|key| !key.is_empty()));
    let _ = credentials::query(&parts, "scope");
    // The header wins, whatever stands in the query.
    parts.headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer ips_own"));
    assert_eq!(credentials::presented(&parts).as_deref(), Some("ips_own"));
});
