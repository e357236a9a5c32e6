//! The same program in several languages, one shown at a time.

use askama::Template;

/// A program in one language.
pub(crate) struct CodeTab {
    /// Such as `python`.
    pub(crate) id: String,
    /// Such as `Python`.
    pub(crate) title: String,
    /// The highlighted program.
    pub(crate) html: String,
}

/// Part of a page. The choice of a language applies to all tabs of the page.
#[derive(Template)]
#[template(path = "code_tabs.html")]
pub(crate) struct CodeTabs {
    /// Distinguishes the tabs of a page.
    pub(crate) group: String,
    /// What the programs do.
    pub(crate) label: String,
    /// Whether the ids of the languages are anchors of the page.
    pub(crate) has_anchors: bool,
    pub(crate) tabs: Vec<CodeTab>,
}

#[cfg(test)]
mod tests {
    use crate::docs::index::DocsIndex;

    #[test]
    fn every_language_of_the_docs_has_its_rule_in_the_style_sheet() {
        let css = include_str!("../../assets/public.css");
        let docs_index = DocsIndex::build("https://ip.example");
        let html: String = docs_index.articles().map(|page| &*page.html).collect();
        let languages: Vec<_> =
            html.split(" data-language=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(languages.len() > 10);
        for language in languages {
            let rule = format!("has([value={language}]:checked) [data-language={language}]");
            assert!(css.contains(&rule), "{language} is never shown");
        }
    }
}
