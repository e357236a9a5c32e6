//! The front door: the landing page, the documentation, its search and the reference.

use askama::Template;

use super::{Frame, filters};
use crate::Attribution;
use crate::docs::{Hit, Page};
use crate::landing::Shown;
use crate::reference::{Body, Described, Explained};

/// `/`
#[derive(Template)]
#[template(path = "landing.html")]
pub(crate) struct LandingPage<'a> {
    pub(crate) frame: Frame,
    pub(crate) base_url: &'a str,
    /// The map, as SVG.
    pub(crate) map: String,
    /// The visitor's own answer, highlighted.
    pub(crate) json: String,
    /// How long it took.
    pub(crate) took: String,
    pub(crate) sight: Shown,
    pub(crate) attributions: Vec<Attribution>,
}

/// `/docs` and `/docs/{page}`
#[derive(Template)]
#[template(path = "docs.html")]
pub(crate) struct DocsPage<'a> {
    pub(crate) frame: Frame,
    pub(crate) groups: &'a [(&'static str, Vec<Page>)],
    pub(crate) page: &'a Page,
    pub(crate) html: String,
    pub(crate) before: Option<&'a Page>,
    pub(crate) after: Option<&'a Page>,
}

/// `/docs/search`
#[derive(Template)]
#[template(path = "search.html")]
pub(crate) struct SearchPage<'a> {
    pub(crate) frame: Frame,
    pub(crate) groups: &'a [(&'static str, Vec<Page>)],
    pub(crate) question: String,
    pub(crate) hits: Vec<Hit>,
}

/// `/reference`
#[derive(Template)]
#[template(path = "reference.html")]
pub(crate) struct ReferencePage<'a> {
    pub(crate) frame: Frame,
    pub(crate) base_url: &'a str,
    pub(crate) operations: Vec<Described>,
    pub(crate) bodies: Vec<Body>,
    pub(crate) headers: Vec<Explained>,
}
