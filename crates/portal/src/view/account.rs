//! The pages about the account itself.

use askama::Template;

use super::{Frame, filters};

/// Which mails the member wants.
#[derive(Clone, Copy)]
pub(crate) struct Alerts {
    /// At 80 % of a day.
    pub(crate) near: bool,
    /// At 100 % of a day.
    pub(crate) spent: bool,
    /// On a pause.
    pub(crate) paused: bool,
}

/// A place where the member is signed in.
pub(crate) struct SessionRow {
    pub(crate) id: i64,
    /// Such as `Firefox on Linux`.
    pub(crate) label: String,
    pub(crate) since: String,
    pub(crate) seen: String,
    /// The session that looks at this page.
    pub(crate) current: bool,
}

/// A passkey.
pub(crate) struct PasskeyRow {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) created: String,
}

/// `/account`
#[derive(Template)]
#[template(path = "account.html")]
pub(crate) struct AccountPage {
    pub(crate) frame: Frame,
    pub(crate) email: String,
    pub(crate) plan: String,
    pub(crate) daily_limit: u64,
    pub(crate) alerts: Alerts,
    /// Whether this service sends mail at all.
    pub(crate) has_mail: bool,
    pub(crate) sessions: Vec<SessionRow>,
    pub(crate) passkeys: Vec<PasskeyRow>,
    /// Whether passkeys work at this service's address.
    pub(crate) passkeys_possible: bool,
    /// What was typed as a new address.
    pub(crate) new_email: String,
    /// What is wrong with the form for a new address, and with the one for a new password.
    pub(crate) email_problem: Option<String>,
    pub(crate) password_problem: Option<String>,
}

/// `/account/delete`
#[derive(Template)]
#[template(path = "delete_account.html")]
pub(crate) struct DeleteAccountPage {
    pub(crate) frame: Frame,
    pub(crate) keys: usize,
    pub(crate) problem: Option<String>,
}
