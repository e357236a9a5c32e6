//! The landing page, with the visitor's lookup as a map and as JSON, and the enterprise page. The lookup is free and not stored.
//!
//! Every response can be read from any origin. So a script of another origin gets the page without the lookup, and everyone
//! else gets it only so often per network. Otherwise any site could use the page as an API without a key.

mod map;
pub(crate) mod paired_address;
pub(crate) mod self_view;

use std::time::Duration;

use axum::Extension;
use axum::response::Response;
use http::header::{CONTENT_SECURITY_POLICY, ORIGIN, VARY};
use http::{HeaderMap, HeaderName, HeaderValue};
use ipseity_domain::{Client, Field};

use self_view::SelfView;

use crate::csp::csp_with_requests_to;
use crate::docs::highlight::highlight_code;
use crate::error::PortalError;
use crate::page::{Visitor, render_page};
use crate::public_pages::PublicPages;
use crate::view::frame::Tab;
use crate::view::public::{LandingLookup, LandingPage};
use crate::view::static_pages::EnterprisePage;

const TITLE: &str = "Ipseity: who you are on the network";
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

pub(crate) async fn show_landing(
    pages: PublicPages,
    visitor: Visitor,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let is_shown =
        is_navigation(&headers) && pages.self_lookup_throttle.record_attempt(client.address.subnet()).is_ok();
    let lookup = if is_shown { Some(landing_lookup(&pages, &client)?) } else { None };
    let description = format!(
        "One API call returns the caller's IP address, location, network and connection. Free API keys, {} fields, \
         round-trip time and TLS measured on the connection, no addresses stored.",
        Field::ALL.len()
    );
    let frame = visitor.public_frame(&pages, TITLE, Tab::None, &description, "/");
    let attributions = pages.host.data_attributions();
    let pair_urls = pages.host.pair_urls();
    let base_url = &pages.settings.base_url;
    let demo_daily_limit = pages.settings.demo_daily_limit;
    let page = LandingPage { frame, base_url, lookup, pair_urls, attributions, demo_daily_limit };
    let mut response = render_page(&page);
    if let Some(urls) = pair_urls {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, csp_with_requests_to(urls));
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Origin, Sec-Fetch-Dest, Sec-Fetch-Mode"));
    Ok(response)
}

/// Whether the page is opened, and not requested by a script in a page. Browsers send the two headers over https. Without them, a script of another origin is
/// recognized by `Origin`.
fn is_navigation(headers: &HeaderMap) -> bool {
    match (headers.get(SEC_FETCH_MODE), headers.get(SEC_FETCH_DEST)) {
        (None, None) => !headers.contains_key(ORIGIN),
        (mode, dest) => mode.is_some_and(|mode| mode == "navigate") && dest.is_some_and(|dest| dest == "document"),
    }
}

fn landing_lookup(pages: &PublicPages, client: &Client) -> Result<LandingLookup, PortalError> {
    let lookup = pages.host.self_lookup(client).ok_or(PortalError::Unavailable)?;
    let self_view = SelfView::from_lookup(&lookup).ok_or(PortalError::Unavailable)?;
    Ok(LandingLookup {
        map_svg: self_view.map_svg(),
        json_html: highlight_code(&lookup.json, "json"),
        elapsed: format_duration(lookup.elapsed),
        summary: self_view.summary(),
    })
}

pub(crate) async fn show_enterprise(pages: PublicPages, visitor: Visitor) -> Response {
    let description = "How to get more than 10,000 requests per key per day from Ipseity.";
    render_page(&EnterprisePage {
        frame: visitor.public_frame(&pages, "Enterprise", Tab::None, description, "/enterprise"),
    })
}

/// Formats a short duration.
fn format_duration(elapsed: Duration) -> String {
    let us = elapsed.as_micros();
    if us < 1_000 { format!("{} µs", us.max(1)) } else { format!("{:.1} ms", elapsed.as_secs_f64() * 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_navigation_without_a_foreign_origin_counts_as_opened() {
        let is_opened = |pairs: &[(&'static str, &'static str)]| {
            let headers =
                pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_navigation(&headers.collect())
        };
        let navigation = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        assert!(is_opened(&[]), "curl, and browsers over http");
        assert!(is_opened(&navigation));
        for script in [
            &[("origin", "https://a.example")][..],
            &[("origin", "null")],
            &[("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty"), ("origin", "https://a.example")],
            &[("sec-fetch-mode", "same-origin"), ("sec-fetch-dest", "empty")],
            &[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
            &navigation[..1],
            &navigation[1..],
        ] {
            assert!(!is_opened(script), "{script:?}");
        }
    }

    #[test]
    fn duration_is_shown_in_microseconds_or_milliseconds() {
        assert_eq!(format_duration(Duration::from_nanos(10)), "1 µs");
        assert_eq!(format_duration(Duration::from_micros(42)), "42 µs");
        assert_eq!(format_duration(Duration::from_micros(2_350)), "2.4 ms");
    }
}
