//! The pages that only say something.

use askama::Template;

use super::Frame;

/// `/enterprise`
#[derive(Template)]
#[template(path = "enterprise.html")]
pub(crate) struct EnterprisePage {
    pub(crate) frame: Frame,
}

/// Something that cannot be shown or done, and what to do next.
#[derive(Template)]
#[template(path = "problem.html")]
pub(crate) struct ProblemPage {
    pub(crate) frame: Frame,
    pub(crate) heading: &'static str,
    pub(crate) sentence: String,
    /// Where to go on: an address and what it is called.
    pub(crate) next: (&'static str, &'static str),
}
