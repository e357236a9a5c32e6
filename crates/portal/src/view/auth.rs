//! The pages for sign-up, sign-in, password reset and links in emails.

use askama::Template;

use crate::auth::next_path::NextPath;
use crate::identity_providers::ProviderLink;
use crate::view::filters;
use crate::view::frame::PageFrame;
use crate::view::keys::PresetFields;

/// `/signup`
#[derive(Template)]
#[template(path = "signup.html")]
pub(crate) struct SignUpPage {
    pub(crate) frame: PageFrame,
    /// The email as typed.
    pub(crate) email: String,
    pub(crate) form_error: Option<String>,
    /// Whether anyone may sign up. If not, the page says how to get an invite.
    pub(crate) signup_open: bool,
    /// Whether the email must be confirmed before the account is created.
    pub(crate) needs_email_confirmation: bool,
}

/// Shown after a form that sends an email.
#[derive(Template)]
#[template(path = "email_sent.html")]
pub(crate) struct EmailSentPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    /// What to do with the email.
    pub(crate) message: &'static str,
    /// Where to request the email again.
    pub(crate) retry_href: &'static str,
}

/// Why a visitor who asked for another page has to sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignInReason {
    /// This browser was signed in before.
    SessionEnded,
    /// The page is for members.
    MembersOnly,
}

/// The form of the sign-in page.
#[derive(Default)]
pub(crate) struct SignInForm {
    /// The email as typed.
    pub(crate) email: String,
    /// The page to return to.
    pub(crate) next: NextPath,
    pub(crate) reason: Option<SignInReason>,
    pub(crate) form_error: Option<&'static str>,
}

/// `/signin`
#[derive(Template)]
#[template(path = "signin.html")]
pub(crate) struct SignInPage {
    pub(crate) frame: PageFrame,
    pub(crate) form: SignInForm,
    /// Whether passkeys work at this service's address.
    pub(crate) passkeys_available: bool,
    /// Names of other providers, by index.
    pub(crate) providers: Vec<String>,
}

/// Leads to the page of a provider.
#[derive(Template)]
#[template(path = "continue.html")]
pub(crate) struct ContinueAtProviderPage {
    pub(crate) frame: PageFrame,
    pub(crate) link: ProviderLink,
}

/// `/signin/verify`: the second step of a sign-in.
#[derive(Template)]
#[template(path = "second_factor.html")]
pub(crate) struct SecondFactorPage {
    pub(crate) frame: PageFrame,
    /// The page to return to.
    pub(crate) next: NextPath,
    /// Whether the account has an authenticator app.
    pub(crate) has_totp: bool,
    /// Whether the account has passkeys that work at this service's address.
    pub(crate) has_passkeys: bool,
    pub(crate) form_error: Option<String>,
}

/// `/account/confirm`
#[derive(Template)]
#[template(path = "confirm.html")]
pub(crate) struct ConfirmPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    /// The page to return to.
    pub(crate) next: NextPath,
    /// Whether a second factor is needed.
    pub(crate) needs_code: bool,
    pub(crate) has_passkeys: bool,
    pub(crate) form_error: Option<String>,
}

/// `/forgot`
#[derive(Template)]
#[template(path = "forgot.html")]
pub(crate) struct ForgotPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    pub(crate) form_error: Option<String>,
    /// Whether this service sends email. If not, the page refers to the administrator.
    pub(crate) email_enabled: bool,
}

/// What a link in an email is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkAction {
    /// Confirm a sign-up. Another browser than the one that signed up needs the password.
    ConfirmSignup { needs_password: bool },
    /// Choose a new password.
    ResetPassword,
    /// Choose a password for a new account, by invitation.
    AcceptInvitation,
    /// Confirm a new email. Anyone who is not signed in to the account needs its password.
    ConfirmNewEmail { needs_password: bool },
    /// Restore the email from before a change, and choose a new password.
    RestoreEmail,
}

/// `/link/{token}`: a page with one button, so that programs that open links in emails change nothing.
#[derive(Template)]
#[template(path = "link.html")]
pub(crate) struct LinkPage {
    pub(crate) frame: PageFrame,
    pub(crate) action: LinkAction,
    pub(crate) email: String,
    pub(crate) token: String,
    /// What the first key is for, if confirming creates one.
    pub(crate) first_key: Option<PresetFields>,
    /// Whether a second factor is needed.
    pub(crate) needs_code: bool,
    pub(crate) form_error: Option<String>,
}
