//! The landing page: the visitor's own answer, uncharged, as a picture and as JSON. Nothing of it is kept, by us or by a cache.

mod map;
mod self_view;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ipseity_domain::Client;

pub(crate) use self_view::{SelfView, SelfViewSummary};

use crate::Portal;
use crate::docs::highlight_code;
use crate::error::PortalError;
use crate::page::{Visitor, render_page};
use crate::view::{LandingPage, Tab};

const TITLE: &str = "Ipseity: who you are on the network";
const DESCRIPTION: &str = "One GET returns the caller's own IP address, place, network operator and connection. Exact limits, keys revoked on the \
    next request, round-trip time and TLS measured at first hand, nothing stored.";

/// A client's own answer; no `Debug`, because it holds the address.
pub struct VisitorLookup {
    /// The whole answer as indented JSON.
    pub json: String,
    /// How far off the place may be, if that is known.
    pub accuracy_km: Option<u16>,
    /// How long it took to find and write.
    pub elapsed: Duration,
}

pub(crate) async fn show_landing(
    State(portal): State<Arc<Portal>>,
    visitor: Visitor,
    Extension(client): Extension<Client>,
) -> Result<Response, PortalError> {
    let lookup = portal.host.self_lookup(&client).ok_or(PortalError::Unavailable)?;
    let self_view = SelfView::from_lookup(&lookup).ok_or(PortalError::Unavailable)?;
    let frame = visitor.public_frame(&portal, TITLE, Tab::None, DESCRIPTION, "/");
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

/// A short time as people write it.
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
