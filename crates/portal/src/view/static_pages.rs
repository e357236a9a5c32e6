//! Pages without forms.

use askama::Template;

use crate::view::frame::PageFrame;

/// `/enterprise`
#[derive(Template)]
#[template(path = "enterprise.html")]
pub(crate) struct EnterprisePage {
    pub(crate) frame: PageFrame,
}

/// An error, and what to do next.
#[derive(Template)]
#[template(path = "error.html")]
pub(crate) struct ErrorPage {
    pub(crate) frame: PageFrame,
    pub(crate) heading: &'static str,
    pub(crate) message: String,
    /// URL and label of the button.
    pub(crate) next_link: (&'static str, &'static str),
}

/// `/leaked-keys`
#[derive(Template)]
#[template(path = "report_key.html")]
pub(crate) struct ReportKeyPage {
    pub(crate) frame: PageFrame,
    /// What happened to the reported key.
    pub(crate) outcome: Option<&'static str>,
    /// Whether this service sends email.
    pub(crate) email_enabled: bool,
}
