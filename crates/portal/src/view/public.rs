//! The landing page, the documentation, its search and the reference.

use askama::Template;

use crate::docs::article::DocsArticle;
use crate::docs::search::SearchHit;
use crate::host::DataAttribution;
use crate::landing::self_view::SelfViewSummary;
use crate::reference::manage::ManageOperationDoc;
use crate::reference::openapi::{FieldDoc, OperationDoc, ResponseDoc, SchemaDoc};
use crate::view::filters;
use crate::view::frame::PageFrame;

/// `/`
#[derive(Template)]
#[template(path = "landing.html")]
pub(crate) struct LandingPage<'a> {
    pub(crate) frame: PageFrame,
    pub(crate) base_url: &'a str,
    /// `None` if it is not for this request.
    pub(crate) lookup: Option<LandingLookup>,
    /// URLs over IPv4 only and over IPv6 only. A script requests the visitor's other address with them.
    pub(crate) pair_urls: Option<&'a [String; 2]>,
    pub(crate) attributions: Vec<DataAttribution>,
    pub(crate) demo_daily_limit: u64,
}

/// The visitor's lookup on the landing page.
pub(crate) struct LandingLookup {
    pub(crate) map_svg: String,
    /// The visitor's response, highlighted.
    pub(crate) json_html: String,
    /// Time taken by the lookup.
    pub(crate) elapsed: String,
    pub(crate) summary: SelfViewSummary,
}

/// `/docs` and `/docs/{page}`
#[derive(Template)]
#[template(path = "docs.html")]
pub(crate) struct DocsPage<'a> {
    pub(crate) frame: PageFrame,
    pub(crate) groups: &'a [(&'static str, Vec<DocsArticle>)],
    pub(crate) page: &'a DocsArticle,
    pub(crate) html: String,
    pub(crate) previous: Option<&'a DocsArticle>,
    pub(crate) next: Option<&'a DocsArticle>,
}

/// `/docs/search`
#[derive(Template)]
#[template(path = "search.html")]
pub(crate) struct SearchPage<'a> {
    pub(crate) frame: PageFrame,
    pub(crate) groups: &'a [(&'static str, Vec<DocsArticle>)],
    pub(crate) query: String,
    pub(crate) hits: Vec<SearchHit>,
}

/// `/reference`
#[derive(Template)]
#[template(path = "reference.html")]
pub(crate) struct ReferencePage<'a> {
    pub(crate) frame: PageFrame,
    pub(crate) base_url: &'a str,
    pub(crate) operations: Vec<OperationDoc>,
    /// Errors of every operation.
    pub(crate) common_errors: Vec<ResponseDoc>,
    pub(crate) manage_operations: Vec<ManageOperationDoc>,
    pub(crate) schemas: Vec<SchemaDoc>,
    pub(crate) headers: Vec<FieldDoc>,
}
