//! The texts, as Markdown and rendered. They are rendered once, at startup.

use crate::docs::markdown::render_operator_text;

/// The operator's texts, as Markdown. A text that is not set has no page.
#[derive(Clone, Debug, Default)]
pub struct LegalTexts {
    /// The terms of service.
    pub terms: Option<String>,
    /// The privacy policy.
    pub privacy: Option<String>,
}

/// The rendered texts.
pub(crate) struct LegalPages {
    pub(crate) terms: Option<LegalText>,
    pub(crate) privacy: Option<LegalText>,
}

/// A rendered text.
pub(crate) struct LegalText {
    pub(super) path: &'static str,
    pub(super) title: String,
    pub(super) html: String,
}

impl LegalPages {
    pub(crate) fn render(texts: &LegalTexts) -> Self {
        let render = |markdown: &Option<String>, path, title: &str| {
            let rendered = render_operator_text(markdown.as_ref()?);
            let title = if rendered.title.is_empty() { title.to_owned() } else { rendered.title };
            Some(LegalText { path, title, html: rendered.html })
        };
        Self {
            terms: render(&texts.terms, "/terms", "Terms of service"),
            privacy: render(&texts.privacy, "/privacy", "Privacy policy"),
        }
    }

    /// The paths of the texts that are set.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &'static str> {
        [&self.terms, &self.privacy].into_iter().flatten().map(|text| text.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_not_set_have_no_page() {
        let texts = LegalTexts { terms: Some("Be kind.".to_owned()), privacy: None };
        let pages = LegalPages::render(&texts);
        assert_eq!(pages.paths().collect::<Vec<_>>(), ["/terms"]);
        assert_eq!(pages.terms.map(|text| text.title), Some("Terms of service".to_owned()), "a text without a heading");
        let texts = LegalTexts { privacy: Some("# What we keep\n\nNothing.".to_owned()), terms: None };
        let privacy = LegalPages::render(&texts).privacy.expect("text is set");
        assert_eq!((privacy.title.as_str(), privacy.html.trim()), ("What we keep", "<p>Nothing.</p>"));
    }
}
