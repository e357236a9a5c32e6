//! What all pages share.

/// Where in the portal a page stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    /// Keys.
    Keys,
    /// Usage.
    Usage,
    /// The account.
    Account,
    /// Documentation.
    Docs,
    /// The API reference.
    Reference,
    /// None of them.
    None,
}

/// What became of the form that led here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice(pub(crate) &'static str);

/// How a page presents itself to whoever finds or links to it.
pub(crate) struct SeoMetadata {
    /// What it is about, in a sentence or two.
    pub(crate) description: String,
    /// Its path.
    pub(crate) path: String,
    /// Where browsers reach the service.
    pub(crate) base_url: String,
}

/// The frame around a page.
pub(crate) struct PageFrame {
    /// The page's title.
    pub(crate) title: String,
    /// Where it stands.
    pub(crate) tab: Tab,
    /// The signed-in member's e-mail address.
    pub(crate) member_email: Option<String>,
    /// The token that every form carries; empty on pages without one.
    pub(crate) csrf_token: String,
    /// What has just been done.
    pub(crate) notice: Option<Notice>,
    /// Whether strangers may sign up.
    pub(crate) signup_open: bool,
    /// `None` for pages that no search engine should keep.
    pub(crate) seo: Option<SeoMetadata>,
}
