//! The search of the documentation: finds the sections that contain every word of a query, best match first. `docs.js` uses the
//! same rules in the browser.

use serde_json::json;

use crate::docs::article::DocsArticle;
use crate::docs::markdown::DocsSection;

/// A section that matches a query.
pub(crate) struct SearchHit {
    pub(crate) href: String,
    pub(crate) title: String,
    /// Title of its page.
    pub(crate) page_title: String,
    pub(crate) excerpt: String,
}

/// Maximum length of an excerpt, in characters.
const EXCERPT_CHARS_MAX: usize = 160;

/// Finds the sections that match a query, best first.
pub(crate) fn search<'a>(pages: impl Iterator<Item = &'a DocsArticle>, query: &str, hits_max: usize) -> Vec<SearchHit> {
    let query = query.to_lowercase();
    let words: Vec<_> = query.split_whitespace().collect();
    if words.is_empty() {
        return Vec::new();
    }
    let sections = pages.flat_map(|page| page.sections.iter().map(move |section| (page, section)));
    let mut matches: Vec<_> = sections
        .filter_map(|(page, section)| score(page, section, &words).map(|score| (score, page, section)))
        .collect();
    // The sort is stable: sections with the same score stay in reading order.
    matches.sort_by_key(|(score, _, _)| std::cmp::Reverse(*score));
    let hit = |(_, page, section): &(u32, &DocsArticle, &DocsSection)| SearchHit {
        href: section_href(page, section),
        title: section.title.clone(),
        page_title: page.title.clone(),
        excerpt: section.text.chars().take(EXCERPT_CHARS_MAX).collect(),
    };
    matches.iter().take(hits_max).map(hit).collect()
}

/// How well a section matches the words; `None` if one is missing.
fn score(page: &DocsArticle, section: &DocsSection, words: &[&str]) -> Option<u32> {
    let (title, page_title, text) =
        (section.title.to_lowercase(), page.title.to_lowercase(), section.text.to_lowercase());
    let word_score = |word: &&str| {
        let points = 8 * u32::from(title.contains(word))
            + 3 * u32::from(page_title.contains(word))
            + u32::from(text.contains(word));
        (points > 0).then_some(points)
    };
    words.iter().map(word_score).sum()
}

fn section_href(page: &DocsArticle, section: &DocsSection) -> String {
    if section.anchor.is_empty() { page.path() } else { format!("{}#{}", page.path(), section.anchor) }
}

/// Every section as JSON: URL, title, page title, text.
pub(super) fn search_index_json<'a>(pages: impl Iterator<Item = &'a DocsArticle>) -> String {
    let entries: Vec<_> = pages
        .flat_map(|page| {
            page.sections
                .iter()
                .map(move |section| json!([section_href(page, section), section.title, page.title, section.text]))
        })
        .collect();
    format!("{}\n", json!(entries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs::index::{DocsIndex, ErrorSection, error_sections};

    #[test]
    fn search_finds_each_error_code_on_the_errors_page() {
        let docs_index = DocsIndex::build("https://ip.example.com");
        let search = |query| search(docs_index.articles(), query, 20);
        let errors_page = docs_index.find_article("errors").expect("the page of errors exists");
        for ErrorSection { code, .. } in error_sections(&errors_page.sections) {
            let hits = search(code);
            assert!(hits.first().is_some_and(|hit| hit.href.starts_with("/docs/errors#")), "{code}");
        }
        assert!(search("").is_empty() && search("xyzzy").is_empty());
        assert!(search("missing_api_key xyzzy").is_empty(), "every word must match");
    }
}
