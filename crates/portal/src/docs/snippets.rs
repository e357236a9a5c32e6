//! Short programs that make one request with a key, in the languages that pages offer as tabs.

use crate::docs::sample::{DOCS_KEY, program, tab_markdown};

/// A program in one language.
pub(crate) struct Snippet {
    /// Such as `python`.
    pub(crate) id: &'static str,
    /// Such as `Python`.
    pub(crate) title: &'static str,
    /// For highlighting.
    pub(crate) language: &'static str,
    text: &'static str,
    /// Whether pages can run it. Keys with allowed origins work nowhere else.
    pub(crate) runs_in_pages: bool,
}

const fn snippet(id: &'static str, title: &'static str, language: &'static str, text: &'static str) -> Snippet {
    Snippet { id, title, language, text, runs_in_pages: false }
}

pub(crate) const SNIPPETS: [Snippet; 6] = [
    snippet("curl", "curl", "sh", include_str!("../../snippets/curl.sh")),
    Snippet {
        runs_in_pages: true,
        ..snippet("javascript", "JavaScript", "javascript", include_str!("../../snippets/javascript.mjs"))
    },
    snippet("python", "Python", "python", include_str!("../../snippets/python.py")),
    snippet("go", "Go", "go", include_str!("../../snippets/go.go")),
    snippet("php", "PHP", "php", include_str!("../../snippets/php.php")),
    snippet("rust", "Rust", "rust", include_str!("../../snippets/rust.rs")),
];

impl Snippet {
    /// The program, with a key and the base URL of this service.
    pub(crate) fn program(&self, base_url: &str, key: &str) -> String {
        program(self.text, base_url, key)
    }
}

/// All programs as Markdown code blocks that become tabs.
pub(super) fn snippets_markdown(base_url: &str) -> String {
    let block = |snippet: &Snippet| {
        let Snippet { id, title, language, .. } = snippet;
        tab_markdown(language, id, title, &snippet.program(base_url, DOCS_KEY))
    };
    SNIPPETS.iter().map(block).collect()
}
