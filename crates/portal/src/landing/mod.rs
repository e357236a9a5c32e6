//! The landing page, with the visitor's lookup as a map and as JSON, and the enterprise page. The lookup is free and not stored.

mod map;
pub(crate) mod self_view;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ipseity_domain::{Client, Field};

use self_view::SelfView;

use crate::docs::highlight::highlight_code;
use crate::error::PortalError;
use crate::page::{Visitor, render_page};
use crate::state::Portal;
use crate::view::frame::Tab;
use crate::view::public::LandingPage;
use crate::view::static_pages::EnterprisePage;

const TITLE: &str = "Ipseity: who you are on the network";

pub(crate) async fn show_landing(
    State(portal): State<Arc<Portal>>,
    visitor: Visitor,
    Extension(client): Extension<Client>,
) -> Result<Response, PortalError> {
    let lookup = portal.host.self_lookup(&client).ok_or(PortalError::Unavailable)?;
    let self_view = SelfView::from_lookup(&lookup).ok_or(PortalError::Unavailable)?;
    let description = format!(
        "One API call returns the caller's IP address, location, network and connection. Free API keys, {} fields, \
         round-trip time and TLS measured on the connection, no addresses stored.",
        Field::ALL.len()
    );
    let frame = visitor.public_frame(&portal, TITLE, Tab::None, &description, "/");
    Ok(render_page(&LandingPage {
        frame,
        base_url: &portal.settings.base_url,
        map_svg: self_view.map_svg(),
        json_html: highlight_code(&lookup.json, "json"),
        elapsed: format_duration(lookup.elapsed),
        summary: self_view.summary(),
        attributions: portal.host.data_attributions(),
    }))
}

pub(crate) async fn show_enterprise(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    let description = "How to get more than 10,000 requests per key per day from Ipseity.";
    render_page(&EnterprisePage {
        frame: visitor.public_frame(&portal, "Enterprise", Tab::None, description, "/enterprise"),
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
    fn duration_is_shown_in_microseconds_or_milliseconds() {
        assert_eq!(format_duration(Duration::from_nanos(10)), "1 µs");
        assert_eq!(format_duration(Duration::from_micros(42)), "42 µs");
        assert_eq!(format_duration(Duration::from_micros(2_350)), "2.4 ms");
    }
}
