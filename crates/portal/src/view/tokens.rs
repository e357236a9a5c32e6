//! The page of personal tokens.

use askama::Template;

use crate::view::frame::PageFrame;

/// A checkbox for a scope.
pub(crate) struct TokenScopeChoice {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) is_checked: bool,
}

/// A choice of when a token expires.
pub(crate) struct LifetimeChoice {
    pub(crate) value: u32,
    pub(crate) label: &'static str,
    pub(crate) is_selected: bool,
}

/// A token in the list.
pub(crate) struct TokenItem {
    pub(crate) id: String,
    pub(crate) name: String,
    /// The names of its scopes, separated by commas.
    pub(crate) scopes: String,
    pub(crate) created: String,
    /// Such as `Expires 15 Nov 2026`.
    pub(crate) expiry: String,
    pub(crate) is_expired: bool,
    /// `None` if it was never used.
    pub(crate) last_used: Option<String>,
}

/// The form for a new token.
pub(crate) struct NewTokenForm {
    /// Makes a repeated form have no effect.
    pub(crate) form_token: String,
    /// The name as typed.
    pub(crate) name: String,
    pub(crate) scopes: Vec<TokenScopeChoice>,
    pub(crate) lifetimes: Vec<LifetimeChoice>,
    pub(crate) form_error: Option<String>,
}

/// `/account/tokens`
#[derive(Template)]
#[template(path = "tokens.html")]
pub(crate) struct TokensPage {
    pub(crate) frame: PageFrame,
    /// The name and the plain text of the token that the form created.
    pub(crate) created: Option<(String, String)>,
    pub(crate) tokens: Vec<TokenItem>,
    pub(crate) tokens_max: u32,
    /// None if the account has as many tokens as it may have.
    pub(crate) new_token: Option<NewTokenForm>,
    pub(crate) may_resume: bool,
}
