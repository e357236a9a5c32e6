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
    /// None of them.
    None,
}

/// What became of the form that led here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice(pub(crate) &'static str);

/// The frame around a page.
pub(crate) struct Frame {
    /// The page's title.
    pub(crate) title: String,
    /// Where it stands.
    pub(crate) tab: Tab,
    /// The signed-in member's e-mail address.
    pub(crate) member: Option<String>,
    /// The token that every form carries; empty on pages without one.
    pub(crate) csrf: String,
    /// What has just been done.
    pub(crate) notice: Option<Notice>,
    /// Whether strangers may sign up.
    pub(crate) signup_open: bool,
}
