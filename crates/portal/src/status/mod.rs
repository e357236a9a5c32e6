//! The status page, as HTML and as JSON. It shows what this node found out before, so it needs neither a store nor a session.

mod report;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use ipseity_domain::Client;

use self::report::StatusReport;
use crate::auth::session_cookie::SessionCookie;
use crate::error::PortalError;
use crate::host::ProbeState;
use crate::page::{Visitor, render_page};
use crate::public_pages::{PageState, PublicPages};
use crate::time;
use crate::view::frame::Tab;
use crate::view::status::StatusPage;

const DESCRIPTION: &str = "Whether API lookups, sign-in, counting, geo data and sites of this service work right now.";

/// The visitor of the status page. While PostgreSQL does not answer, the page does not wait for it, and everyone is signed out.
pub(crate) struct StatusVisitor(Visitor);

impl<S: PageState> FromRequestParts<S> for StatusVisitor {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PortalError> {
        let session_cookie = SessionCookie::from_headers(&parts.headers);
        let works = state.public_pages().host.health().database == ProbeState::Works;
        let client = parts.extensions.get::<Client>().filter(|_| works).cloned();
        Ok(Self(Visitor::load_or_anonymous(state, session_cookie, client).await))
    }
}

pub(crate) async fn show_status(pages: PublicPages, StatusVisitor(visitor): StatusVisitor) -> Response {
    let report = StatusReport::new(&pages.host.health(), &pages.settings.portal_url);
    render_page(&StatusPage {
        frame: visitor.public_frame(&pages, "Status", Tab::None, DESCRIPTION, "/status"),
        heading: report.heading(),
        components: report.components,
        sites: report.sites,
        checked: time::format_second(i64::try_from(time::now_s()).unwrap_or(i64::MAX)),
    })
}

/// `/status.json`
pub(crate) async fn serve_status(pages: PublicPages) -> Response {
    let report = StatusReport::new(&pages.host.health(), &pages.settings.portal_url);
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "public, max-age=5")];
    (headers, format!("{}\n", report.to_json())).into_response()
}
