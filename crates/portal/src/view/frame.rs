//! The frame around every page.

/// The active tab of the main navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Keys,
    Usage,
    Account,
    Docs,
    Reference,
    /// The page is in no tab.
    None,
}

/// The result of the form that redirected to the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice(pub(crate) &'static str);

/// Metadata for search engines and link previews.
pub(crate) struct SeoMetadata {
    pub(crate) description: String,
    pub(crate) path: String,
    pub(crate) base_url: String,
}

/// The frame around a page.
pub(crate) struct PageFrame {
    pub(crate) title: String,
    pub(crate) tab: Tab,
    /// Email of the signed-in member.
    pub(crate) member_email: Option<String>,
    /// The CSRF token of every form.
    pub(crate) csrf_token: String,
    pub(crate) notice: Option<Notice>,
    /// The operator's message on every page; empty if there is none.
    pub(crate) banner: String,
    /// URL where people reach the operator; empty if there is none.
    pub(crate) contact: String,
    /// Whether the operator has set terms of service.
    pub(crate) has_terms: bool,
    /// Whether the operator has set a privacy policy.
    pub(crate) has_privacy: bool,
    /// Whether anyone may sign up.
    pub(crate) signup_open: bool,
    /// `None` for pages that search engines should not index.
    pub(crate) seo: Option<SeoMetadata>,
}

impl PageFrame {
    /// The contact as text: an email address without its scheme.
    pub(super) fn contact_text(&self) -> &str {
        self.contact.strip_prefix("mailto:").unwrap_or(&self.contact)
    }
}
