//! The pages that only say something.

use askama::Template;

use crate::view::PageFrame;

/// `/enterprise`
#[derive(Template)]
#[template(path = "enterprise.html")]
pub(crate) struct EnterprisePage {
    pub(crate) frame: PageFrame,
}

/// Something that cannot be shown or done, and what to do next.
#[derive(Template)]
#[template(path = "error.html")]
pub(crate) struct ErrorPage {
    pub(crate) frame: PageFrame,
    pub(crate) heading: &'static str,
    pub(crate) message: String,
    /// Where to go on: an address and what it is called.
    pub(crate) next_link: (&'static str, &'static str),
}
