//! The page of linked accounts.

use askama::Template;

use crate::view::frame::PageFrame;

/// An account of another provider in the list.
pub(crate) struct LinkedAccountItem {
    pub(crate) id: i64,
    /// The name of the provider, or its issuer if it is no longer offered.
    pub(crate) provider: String,
    /// What the provider called the account when it was linked.
    pub(crate) label: String,
    pub(crate) linked: String,
    pub(crate) last_used: Option<String>,
}

/// `/account/sign-in`
#[derive(Template)]
#[template(path = "linked_accounts.html")]
pub(crate) struct LinkedAccountsPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    pub(crate) identities: Vec<LinkedAccountItem>,
    /// Names of providers, by index.
    pub(crate) providers: Vec<String>,
    /// Whether linking asks for the password.
    pub(crate) needs_password: bool,
    pub(crate) has_two_factor: bool,
    pub(crate) form_error: Option<String>,
}
