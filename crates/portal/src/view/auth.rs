//! The pages before the door: sign up, sign in, forgotten passwords, links from mails.

use askama::Template;

use crate::view::PageFrame;

/// `/signup`
#[derive(Template)]
#[template(path = "signup.html")]
pub(crate) struct SignUpPage {
    pub(crate) frame: PageFrame,
    /// What was typed.
    pub(crate) email: String,
    /// What is wrong with it, and what to do.
    pub(crate) form_error: Option<String>,
    /// Whether strangers may sign up; if not, the page says how else to come by an account.
    pub(crate) signup_open: bool,
    /// Whether a mail confirms the address before the account is there.
    pub(crate) needs_email_confirmation: bool,
}

/// After a form that sends a mail.
#[derive(Template)]
#[template(path = "email_sent.html")]
pub(crate) struct EmailSentPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    /// What the mail is for.
    pub(crate) message: &'static str,
    /// Where to ask for it again.
    pub(crate) retry_href: &'static str,
}

/// `/signin`
#[derive(Template)]
#[template(path = "signin.html")]
pub(crate) struct SignInPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    pub(crate) form_error: Option<String>,
    /// Whether passkeys work at this service's address.
    pub(crate) passkeys_available: bool,
}

/// `/forgot`
#[derive(Template)]
#[template(path = "forgot.html")]
pub(crate) struct ForgotPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    pub(crate) form_error: Option<String>,
    /// Whether this service sends mail; if not, the operator helps.
    pub(crate) email_enabled: bool,
}

/// What a link from a mail asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkAction {
    /// Confirm a sign-up; in another browser than the one that asked, with the password.
    ConfirmSignup { needs_password: bool },
    /// Choose a new password.
    ResetPassword,
    /// Choose a password for the account that the operator offers.
    AcceptInvitation,
    /// Confirm a new e-mail address.
    ConfirmNewEmail,
}

/// `/link/{token}`: a page with one button, so that a program that follows links in mails does nothing by it.
#[derive(Template)]
#[template(path = "link.html")]
pub(crate) struct LinkPage {
    pub(crate) frame: PageFrame,
    pub(crate) action: LinkAction,
    pub(crate) email: String,
    pub(crate) token: String,
    pub(crate) form_error: Option<String>,
}
