//! The documentation: Markdown files of the project as HTML and as Markdown, with a search. Reading it sets no cookie.

pub(crate) mod article;
pub(crate) mod changelog_feed;
pub(crate) mod highlight;
pub(crate) mod index;
pub(crate) mod markdown;
pub(crate) mod sample;
pub(crate) mod search;
pub(crate) mod snippets;

use axum::extract::{Path, RawQuery};
use axum::response::{IntoResponse, Redirect, Response};
use http::HeaderMap;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::error::PortalError;
use crate::page::{Visitor, render_page};
use crate::public_pages::PublicPages;
use crate::view::frame::Tab;
use crate::view::public::{DocsPage, SearchPage};

/// Maximum number of search results.
const HITS_MAX: usize = 20;
/// Maximum length of a query, in characters.
const QUERY_CHARS_MAX: usize = 100;

pub(crate) async fn show_index(pages: PublicPages, visitor: Visitor) -> Result<Response, PortalError> {
    pages.docs_page("", &visitor)
}

/// A page as HTML, or with the suffix `.md` as Markdown.
pub(crate) async fn show_page(
    pages: PublicPages,
    visitor: Visitor,
    Path(name): Path<String>,
) -> Result<Response, PortalError> {
    let (slug, suffix) = name.strip_suffix(".md").map_or((&*name, ""), |slug| (slug, ".md"));
    if let Some(path) = index::moved_path(slug, suffix) {
        // Browsers add the anchor of the old link to the new one.
        return Ok(Redirect::permanent(&path).into_response());
    }
    match suffix {
        ".md" if !slug.is_empty() => pages.docs_markdown(slug),
        _ => pages.docs_page(&name, &visitor),
    }
}

/// `/docs.md`: the first page as Markdown.
pub(crate) async fn index_markdown(pages: PublicPages) -> Result<Response, PortalError> {
    pages.docs_markdown("")
}

impl PublicPages {
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

/// `/docs/search?q=`: the search without JavaScript.
pub(crate) async fn show_search(pages: PublicPages, visitor: Visitor, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let search_text = form_urlencoded::parse(query.as_bytes()).find_map(|(name, value)| (name == "q").then_some(value));
    let search_text: String = search_text.unwrap_or_default().trim().chars().take(QUERY_CHARS_MAX).collect();
    let frame = visitor.frame(&pages, "Search", Tab::Docs);
    let hits = search::search(pages.docs_index.articles(), &search_text, HITS_MAX);
    render_page(&SearchPage { frame, groups: pages.docs_index.groups(), query: search_text, hits })
}

/// `/changelog.xml`
pub(crate) async fn serve_changelog_feed(pages: PublicPages, headers: HeaderMap) -> Response {
    pages.docs_index.changelog_feed().respond(&headers, "public, max-age=3600")
}

/// `/docs/search.json`: the index for the search in the browser.
pub(crate) async fn serve_search_index(pages: PublicPages, headers: HeaderMap) -> Response {
    pages.docs_index.search_json().respond(&headers, "public, max-age=300")
}
