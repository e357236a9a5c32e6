//! Documentation: Markdown files of the project as pages, as Markdown, and searched. A stranger who only reads gets no cookie.

mod highlight;
mod index;
mod markdown;
mod sample;
mod search;

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

pub(crate) use highlight::highlight_code;
pub(crate) use index::{DocsArticle, DocsIndex};
pub(crate) use search::SearchHit;

use crate::Portal;
use crate::error::PortalError;
use crate::page::{Visitor, render_page};
use crate::view::{DocsPage, EnterprisePage, SearchPage, Tab};

/// Results of a search that are shown.
const HITS_MAX: usize = 20;
/// Letters of a question that are read.
const QUERY_CHARS_MAX: usize = 100;

/// A sentence about where data comes from, and the address that it links to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataAttribution {
    /// The sentence.
    pub text: String,
    /// The address, if its licence asks for one.
    pub url: Option<String>,
}

pub(crate) async fn show_index(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Result<Response, PortalError> {
    portal.docs_page("", &visitor)
}

/// A page by its name, or as Markdown by its name and `.md`.
pub(crate) async fn show_page(
    State(portal): State<Arc<Portal>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PortalError> {
    match name.strip_suffix(".md") {
        Some(slug) if !slug.is_empty() => portal.docs_markdown(slug),
        Some(_) | None => portal.docs_page(&name, &visitor),
    }
}

/// `/docs.md`: the first page as Markdown.
pub(crate) async fn index_markdown(State(portal): State<Arc<Portal>>) -> Result<Response, PortalError> {
    portal.docs_markdown("")
}

impl Portal {
    fn docs_page(&self, slug: &str, visitor: &Visitor) -> Result<Response, PortalError> {
        let page = self.docs_index.find_article(slug).ok_or(PortalError::DocsPageNotFound)?;
        let frame = visitor.public_frame(self, &page.title, Tab::Docs, &page.description, &page.path());
        let attributions = self.host.data_attributions();
        let html = index::with_attributions_html(&page.html, &attributions);
        let (previous, next) = self.docs_index.previous_and_next(slug);
        Ok(render_page(&DocsPage { frame, groups: self.docs_index.groups(), page, html, previous, next }))
    }

    fn docs_markdown(&self, slug: &str) -> Result<Response, PortalError> {
        let page = self.docs_index.find_article(slug).ok_or(PortalError::DocsPageNotFound)?;
        let text = index::with_attributions(&page.markdown, &self.host.data_attributions());
        let content_type = (CONTENT_TYPE, "text/markdown; charset=utf-8");
        Ok(([content_type, (CACHE_CONTROL, "public, max-age=300")], text).into_response())
    }
}

/// `/docs/search?q=`: for those without script, and for links to a search.
pub(crate) async fn show_search(
    State(portal): State<Arc<Portal>>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    let search_text = form_urlencoded::parse(query.as_bytes()).find_map(|(name, value)| (name == "q").then_some(value));
    let search_text: String = search_text.unwrap_or_default().trim().chars().take(QUERY_CHARS_MAX).collect();
    let frame = visitor.frame(&portal, "Search", Tab::Docs);
    let hits = portal.docs_index.search(&search_text, HITS_MAX);
    render_page(&SearchPage { frame, groups: portal.docs_index.groups(), query: search_text, hits })
}

/// `/docs/search.json`: what the page's own search looks through.
pub(crate) async fn serve_search_index(State(portal): State<Arc<Portal>>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "public, max-age=300")];
    (headers, portal.docs_index.search_json().to_owned()).into_response()
}

pub(crate) async fn show_enterprise(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    let description = "How to get more than 10,000 requests a day and key from Ipseity.";
    render_page(&EnterprisePage {
        frame: visitor.public_frame(&portal, "More than the free plan", Tab::None, description, "/enterprise"),
    })
}
