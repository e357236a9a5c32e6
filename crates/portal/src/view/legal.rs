//! The operator's terms of service and privacy policy.

use askama::Template;

use crate::view::frame::PageFrame;

/// `/terms` and `/privacy`
#[derive(Template)]
#[template(path = "legal.html")]
pub(crate) struct LegalPage<'a> {
    pub(crate) frame: PageFrame,
    pub(crate) title: &'a str,
    pub(crate) html: &'a str,
}
