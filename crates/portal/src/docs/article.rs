//! A page of the documentation.

use crate::docs::markdown::DocsSection;

/// A rendered page of the documentation.
pub(crate) struct DocsArticle {
    /// Name in the URL; empty for the first page.
    pub(crate) slug: &'static str,
    pub(crate) title: String,
    /// The first paragraph.
    pub(crate) description: String,
    pub(crate) html: String,
    pub(crate) markdown: String,
    pub(crate) sections: Vec<DocsSection>,
}

impl DocsArticle {
    pub(crate) fn path(&self) -> String {
        if self.slug.is_empty() { "/docs".to_owned() } else { format!("/docs/{}", self.slug) }
    }
}
