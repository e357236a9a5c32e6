//! The pages of two-factor authentication.

use askama::Template;

use crate::view::frame::PageFrame;

/// `/account/two-factor`
#[derive(Template)]
#[template(path = "two_factor.html")]
pub(crate) struct TwoFactorPage {
    pub(crate) frame: PageFrame,
    pub(crate) is_enabled: bool,
    /// Whether the operator requires it.
    pub(crate) is_required: bool,
    /// Whether the account has an authenticator app.
    pub(crate) has_totp: bool,
    pub(crate) passkeys: i64,
    /// Recovery codes that are left.
    pub(crate) recovery_codes: i64,
    pub(crate) needs_password: bool,
    pub(crate) form_error: Option<String>,
}

/// Shown after the first step of the setup of an authenticator app.
#[derive(Template)]
#[template(path = "totp_setup.html")]
pub(crate) struct TotpSetupPage {
    pub(crate) frame: PageFrame,
    /// SVG.
    pub(crate) qr_code: String,
    pub(crate) secret: String,
    pub(crate) form_error: Option<String>,
}

/// Shown once, when recovery codes are created.
#[derive(Template)]
#[template(path = "recovery_codes.html")]
pub(crate) struct RecoveryCodesPage {
    pub(crate) frame: PageFrame,
    /// One per line.
    pub(crate) codes: String,
}
