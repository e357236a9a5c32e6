//! The pages about the account itself.

use askama::Template;

use crate::view::{PageFrame, filters};

/// Which mails the member wants.
#[derive(Clone, Copy)]
pub(crate) struct AlertSettings {
    /// At 80 % of a day.
    pub(crate) near_quota: bool,
    /// At 100 % of a day.
    pub(crate) quota_exhausted: bool,
    /// On a pause.
    pub(crate) paused: bool,
}

/// A place where the member is signed in.
pub(crate) struct SessionItem {
    pub(crate) id: i64,
    /// Such as `Firefox on Linux`.
    pub(crate) label: String,
    pub(crate) signed_in_at: String,
    pub(crate) last_seen_at: String,
    /// The session that looks at this page.
    pub(crate) is_current: bool,
}

/// A passkey.
pub(crate) struct PasskeyItem {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) created: String,
}

/// `/account`
#[derive(Template)]
#[template(path = "account.html")]
pub(crate) struct AccountPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    pub(crate) plan: String,
    pub(crate) daily_limit: u64,
    pub(crate) alerts: AlertSettings,
    /// Whether this service sends mail at all.
    pub(crate) email_enabled: bool,
    pub(crate) sessions: Vec<SessionItem>,
    pub(crate) passkeys: Vec<PasskeyItem>,
    /// Whether passkeys work at this service's address.
    pub(crate) passkeys_available: bool,
    /// What was typed as a new address.
    pub(crate) new_email: String,
    /// What is wrong with the form for a new address, and with the one for a new password.
    pub(crate) email_error: Option<String>,
    pub(crate) password_error: Option<String>,
}

/// `/account/delete`
#[derive(Template)]
#[template(path = "delete_account.html")]
pub(crate) struct DeleteAccountPage {
    pub(crate) frame: PageFrame,
    pub(crate) key_count: usize,
    pub(crate) form_error: Option<String>,
}
