//! Pages about operators and errors.

use askama::Template;
use ipseity_store::{Operator, OperatorRole};

use crate::console::view::frame::ConsoleFrame;
use crate::identity_providers::ProviderLink;
use crate::view::filters;

/// Any error.
#[derive(Template)]
#[template(path = "console/error.html")]
pub(crate) struct ConsoleErrorPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) heading: &'static str,
    pub(crate) message: String,
}

/// `/signin`
#[derive(Template)]
#[template(path = "console/signin.html")]
pub(crate) struct ConsoleSignInPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) passkeys_available: bool,
    /// Names of other providers, by index.
    pub(crate) providers: Vec<String>,
}

/// `/join/{token}`
#[derive(Template)]
#[template(path = "console/join.html")]
pub(crate) struct JoinPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) token: String,
    /// `None` if the visitor becomes the first operator.
    pub(crate) operator: Option<Operator>,
    pub(crate) passkeys_available: bool,
    /// Names of other providers, by index.
    pub(crate) providers: Vec<String>,
}

/// Leads to the page of a provider.
#[derive(Template)]
#[template(path = "console/continue.html")]
pub(crate) struct ContinuePage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) link: ProviderLink,
}

/// A way to sign in.
pub(crate) struct CredentialItem {
    pub(crate) id: i64,
    pub(crate) name: String,
    /// `None` for a passkey.
    pub(crate) issuer: Option<String>,
    pub(crate) created: String,
}

/// `/profile`
#[derive(Template)]
#[template(path = "console/profile.html")]
pub(crate) struct ProfilePage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) credentials: Vec<CredentialItem>,
    pub(crate) passkeys_available: bool,
    /// Names of other providers, by index.
    pub(crate) providers: Vec<String>,
}

/// An operator in the list.
pub(crate) struct OperatorItem {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) role: OperatorRole,
    pub(crate) is_self: bool,
    pub(crate) added: String,
    pub(crate) last_seen: Option<String>,
    /// Whether the operator has a way to sign in.
    pub(crate) has_joined: bool,
    /// Whether the link can still be used.
    pub(crate) has_link: bool,
}

/// `/operators`
#[derive(Template)]
#[template(path = "console/operators.html")]
pub(crate) struct OperatorsPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) operators: Vec<OperatorItem>,
}

/// A link for an operator, shown once.
#[derive(Template)]
#[template(path = "console/operator_link.html")]
pub(crate) struct OperatorLinkPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) name: String,
    pub(crate) url: String,
}
