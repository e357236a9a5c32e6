//! Documentation: Markdown files of the project as pages, as Markdown, and searched. A stranger who only reads gets no cookie.

mod highlight;
mod library;
mod markdown;
mod sample;
mod search;

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

pub(crate) use highlight::highlighted;
pub(crate) use library::{Library, Page};
pub(crate) use search::Hit;

use crate::Portal;
use crate::page::{Visitor, show};
use crate::problem::Problem;
use crate::view::{DocsPage, EnterprisePage, SearchPage, Tab};

/// Results of a search that are shown.
const HITS_MAX: usize = 20;
/// Letters of a question that are read.
const QUESTION_MAX: usize = 100;

/// A sentence about where data comes from, and the address that it links to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The sentence.
    pub text: String,
    /// The address, if its licence asks for one.
    pub url: Option<String>,
}

pub(crate) async fn start(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Result<Response, Problem> {
    portal.docs_page("", &visitor)
}

/// A page by its name, or as Markdown by its name and `.md`.
pub(crate) async fn page(
    State(portal): State<Arc<Portal>>,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    match name.strip_suffix(".md") {
        Some(slug) if !slug.is_empty() => portal.docs_markdown(slug),
        Some(_) | None => portal.docs_page(&name, &visitor),
    }
}

/// `/docs.md`: the first page as Markdown.
pub(crate) async fn start_markdown(State(portal): State<Arc<Portal>>) -> Result<Response, Problem> {
    portal.docs_markdown("")
}

impl Portal {
    fn docs_page(&self, slug: &str, visitor: &Visitor) -> Result<Response, Problem> {
        let page = self.library.find(slug).ok_or(Problem::NoSuchPage)?;
        let frame = visitor.public_frame(self, &page.title, Tab::Docs, &page.description, &page.path());
        let attributions = self.surroundings.attributions();
        let html = library::with_attributions_html(&page.html, &attributions);
        let (before, after) = self.library.neighbours(slug);
        Ok(show(&DocsPage { frame, groups: self.library.groups(), page, html, before, after }))
    }

    fn docs_markdown(&self, slug: &str) -> Result<Response, Problem> {
        let page = self.library.find(slug).ok_or(Problem::NoSuchPage)?;
        let text = library::with_attributions(&page.markdown, &self.surroundings.attributions());
        let kind = (CONTENT_TYPE, "text/markdown; charset=utf-8");
        Ok(([kind, (CACHE_CONTROL, "public, max-age=300")], text).into_response())
    }
}

/// `/docs/search?q=`: for those without script, and for links to a search.
pub(crate) async fn search(State(portal): State<Arc<Portal>>, visitor: Visitor, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let question = form_urlencoded::parse(query.as_bytes()).find_map(|(name, value)| (name == "q").then_some(value));
    let question: String = question.unwrap_or_default().trim().chars().take(QUESTION_MAX).collect();
    let frame = visitor.frame(&portal, "Search", Tab::Docs);
    let hits = portal.library.search(&question, HITS_MAX);
    show(&SearchPage { frame, groups: portal.library.groups(), question, hits })
}

/// `/docs/search.json`: what the page's own search looks through.
pub(crate) async fn search_index(State(portal): State<Arc<Portal>>) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "public, max-age=300")];
    (headers, portal.library.index().to_owned()).into_response()
}

pub(crate) async fn enterprise(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    let sentence = "How to get more than 10,000 requests a day and key from Ipseity.";
    show(&EnterprisePage {
        frame: visitor.public_frame(&portal, "More than the free plan", Tab::None, sentence, "/enterprise"),
    })
}
