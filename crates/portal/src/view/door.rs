//! The pages before the door: sign up, sign in, forgotten passwords, links from mails.

use askama::Template;

use super::Frame;

/// `/signup`
#[derive(Template)]
#[template(path = "signup.html")]
pub(crate) struct SignUpPage {
    pub(crate) frame: Frame,
    /// What was typed.
    pub(crate) email: String,
    /// What is wrong with it, and what to do.
    pub(crate) problem: Option<String>,
    /// Whether strangers may sign up; if not, the page says how else to come by an account.
    pub(crate) open: bool,
    /// Whether a mail confirms the address before the account is there.
    pub(crate) confirmed_by_mail: bool,
}

/// After a form that sends a mail.
#[derive(Template)]
#[template(path = "sent.html")]
pub(crate) struct SentPage {
    pub(crate) frame: Frame,
    pub(crate) email: String,
    /// What the mail is for.
    pub(crate) sentence: &'static str,
    /// Where to ask for it again.
    pub(crate) again: &'static str,
}

/// `/signin`
#[derive(Template)]
#[template(path = "signin.html")]
pub(crate) struct SignInPage {
    pub(crate) frame: Frame,
    pub(crate) email: String,
    pub(crate) problem: Option<String>,
    /// Whether passkeys work at this service's address.
    pub(crate) passkeys: bool,
}

/// `/forgot`
#[derive(Template)]
#[template(path = "forgot.html")]
pub(crate) struct ForgotPage {
    pub(crate) frame: Frame,
    pub(crate) email: String,
    pub(crate) problem: Option<String>,
    /// Whether this service sends mail; if not, the operator helps.
    pub(crate) has_mail: bool,
}

/// What a link from a mail asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkWish {
    /// Confirm a sign-up; in another browser than the one that asked, with the password.
    Confirm { with_password: bool },
    /// Choose a new password.
    NewPassword,
    /// Choose a password for the account that the operator offers.
    Invited,
    /// Confirm a new e-mail address.
    NewEmail,
}

/// `/link/{token}`: a page with one button, so that a program that follows links in mails does nothing by it.
#[derive(Template)]
#[template(path = "link.html")]
pub(crate) struct LinkPage {
    pub(crate) frame: Frame,
    pub(crate) wish: LinkWish,
    pub(crate) email: String,
    pub(crate) token: String,
    pub(crate) problem: Option<String>,
}
