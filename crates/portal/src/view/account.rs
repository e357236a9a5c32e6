//! The account pages.

use askama::Template;

use crate::view::filters;
use crate::view::frame::PageFrame;

/// A session in the list of sessions.
pub(crate) struct SessionItem {
    pub(crate) id: i64,
    /// Such as `Firefox on Linux`.
    pub(crate) label: String,
    pub(crate) signed_in_at: String,
    pub(crate) last_seen_at: String,
    /// Whether the page is viewed with this session.
    pub(crate) is_current: bool,
}

/// A passkey in the list of passkeys.
pub(crate) struct PasskeyItem {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) created: String,
}

/// A browser that signed in before.
pub(crate) struct DeviceItem {
    pub(crate) id: i64,
    /// Such as `Firefox on Linux`.
    pub(crate) label: String,
    pub(crate) signed_in_at: String,
}

/// An event of the security log.
pub(crate) struct EventItem {
    pub(crate) at: String,
    pub(crate) description: String,
    /// The key that it is about.
    pub(crate) key: Option<String>,
}

/// `/account`
#[derive(Template)]
#[template(path = "account.html")]
pub(crate) struct AccountPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    pub(crate) plan: String,
    pub(crate) daily_limit: u64,
    pub(crate) burst_limit: u64,
    /// Whether this service sends email.
    pub(crate) email_enabled: bool,
    pub(crate) sessions: Vec<SessionItem>,
    pub(crate) passkeys: Vec<PasskeyItem>,
    /// Whether passkeys work with the base URL.
    pub(crate) passkeys_available: bool,
    /// Number of linked accounts of other providers.
    pub(crate) linked_accounts: usize,
    /// Whether there are personal tokens.
    pub(crate) has_tokens: bool,
    /// Whether members can sign in with other providers.
    pub(crate) providers_available: bool,
    /// Whether the forms ask for the password.
    pub(crate) needs_password: bool,
    pub(crate) has_two_factor: bool,
    pub(crate) devices: Vec<DeviceItem>,
    /// The newest events of the security log.
    pub(crate) events: Vec<EventItem>,
    /// The new email as typed.
    pub(crate) new_email: String,
    pub(crate) email_error: Option<String>,
    pub(crate) password_error: Option<String>,
}

/// `/account/delete`
#[derive(Template)]
#[template(path = "delete_account.html")]
pub(crate) struct DeleteAccountPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    pub(crate) key_count: usize,
    /// Whether the password is needed.
    pub(crate) needs_password: bool,
    pub(crate) form_error: Option<String>,
}
