//! Searching the documentation: sections that hold every word of a question, those first that are about it. `docs.js` does the same in the browser.

use serde_json::json;

use super::library::{Library, Page};
use super::markdown::Section;

/// A section that answers a question.
pub(crate) struct Hit {
    pub(crate) address: String,
    pub(crate) title: String,
    /// The page that it is on.
    pub(crate) page: String,
    pub(crate) text: String,
}

/// Letters of a section that a result shows.
const SHOWN_MAX: usize = 160;

impl Library {
    /// The sections that answer a question, best first.
    pub(crate) fn search(&self, question: &str, hits_max: usize) -> Vec<Hit> {
        let question = question.to_lowercase();
        let words: Vec<_> = question.split_whitespace().collect();
        if words.is_empty() {
            return Vec::new();
        }
        let sections = self.pages().flat_map(|page| page.sections.iter().map(move |section| (page, section)));
        let mut found: Vec<_> = sections
            .filter_map(|(page, section)| score(page, section, &words).map(|score| (score, page, section)))
            .collect();
        // Stable: equals stay in the order in which they are read.
        found.sort_by_key(|(score, _, _)| std::cmp::Reverse(*score));
        let hit = |(_, page, section): &(u32, &Page, &Section)| Hit {
            address: address(page, section),
            title: section.title.clone(),
            page: page.title.clone(),
            text: section.text.chars().take(SHOWN_MAX).collect(),
        };
        found.iter().take(hits_max).map(hit).collect()
    }
}

/// How much a section is about all the words; `None` if one is missing.
fn score(page: &Page, section: &Section, words: &[&str]) -> Option<u32> {
    let (title, of, text) = (section.title.to_lowercase(), page.title.to_lowercase(), section.text.to_lowercase());
    let worth = |word: &&str| {
        let points =
            8 * u32::from(title.contains(word)) + 3 * u32::from(of.contains(word)) + u32::from(text.contains(word));
        (points > 0).then_some(points)
    };
    words.iter().map(worth).sum()
}

fn address(page: &Page, section: &Section) -> String {
    if section.anchor.is_empty() { page.path() } else { format!("{}#{}", page.path(), section.anchor) }
}

/// Every section as JSON: address, title, page, text.
pub(super) fn index<'a>(pages: impl Iterator<Item = &'a Page>) -> String {
    let entries: Vec<_> = pages
        .flat_map(|page| {
            page.sections
                .iter()
                .map(move |section| json!([address(page, section), section.title, page.title, section.text]))
        })
        .collect();
    json!(entries).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_code_is_found_where_it_is_explained() {
        let library = Library::open("https://ip.example.com");
        for code in [
            "missing_api_key",
            "invalid_api_key",
            "inactive_api_key",
            "rate_limit_exceeded",
            "internal_error",
            "not_found",
            "method_not_allowed",
            "uri_too_long",
        ] {
            let hits = library.search(code, 20);
            assert!(hits.first().is_some_and(|hit| hit.address.starts_with("/docs/errors#")), "{code}");
        }
        assert!(library.search("", 20).is_empty() && library.search("xyzzy", 20).is_empty());
        assert!(library.search("missing_api_key xyzzy", 20).is_empty(), "every word counts");
    }
}
