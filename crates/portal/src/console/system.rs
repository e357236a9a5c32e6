//! The stores, geo databases, certificates and settings of this node.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::{CertificateItem, EditionItem, SystemPage};
use crate::page::render_page;
use crate::time;

const DAY_S: i64 = 86_400;
/// Certificates are renewed before; one that is older needs attention.
const EXPIRES_SOON_DAYS: i64 = 14;

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let now_s = i64::try_from(time::now_s()).unwrap_or(i64::MAX);
    let editions = console.host.geo_editions().into_iter().map(|edition| EditionItem {
        name: edition.name,
        built: time::format_date(edition.built_s),
        age_days: (now_s - edition.built_s) / DAY_S,
        attribution: edition.attribution,
    });
    let certificates = console.host.certificates().into_iter().map(|certificate| CertificateItem {
        name: certificate.name,
        expires: time::format_minute(certificate.expires_s),
        expires_soon: certificate.expires_s - now_s < EXPIRES_SOON_DAYS * DAY_S,
    });
    Ok(render_page(&SystemPage {
        frame: operator.frame("System", ConsoleTab::System),
        health: console.host.health(),
        editions: editions.collect(),
        certificates: certificates.collect(),
        settings: console.host.settings(),
    }))
}
