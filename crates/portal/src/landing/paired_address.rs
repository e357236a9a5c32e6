//! The visitor's address of the other family, which a script of the landing page requests.

use axum::Extension;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ipseity_domain::Client;

use crate::public_pages::PublicPages;

pub(crate) const PAIRED_ADDRESS_PATH: &str = "/paired-address";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns both addresses as JSON. It is only for the landing page, and counts like it: otherwise any site could use it as an
/// API without a key.
pub(crate) async fn show_paired_address(
    pages: PublicPages,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    let is_from_page = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin");
    let is_shown = is_from_page && pages.self_lookup_throttle.record_attempt(client.address.subnet()).is_ok();
    let body = if is_shown { pages.host.paired_self_lookup(&client, &headers) } else { None };
    match body {
        Some(body) => ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}
