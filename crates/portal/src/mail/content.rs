//! What the mails say.

use ipseity_store::{AlertKind, QueuedAlert, QueuedEmailKind};

use crate::auth::session_cookie::SecretToken;

/// A mail's subject and text.
pub(super) struct EmailContent {
    pub(super) subject: String,
    pub(super) text: String,
}

const SIGNATURE: &str = "\n\nIpseity\n";

impl EmailContent {
    /// A mail that carries a link, or says that none is needed.
    pub(super) fn for_email_token(kind: QueuedEmailKind, base_url: &str, token: &SecretToken) -> Self {
        let link = format!("{base_url}/link/{}", token.expose());
        let (subject, text) = match kind {
            QueuedEmailKind::ConfirmSignUp => (
                "Confirm your address",
                format!(
                    "Welcome. Open this link to finish signing up; it works once, for 24 hours:\n\n{link}\n\n\
                     If you did not sign up, do nothing: no account is made."
                ),
            ),
            QueuedEmailKind::AlreadyRegistered => (
                "You have an account already",
                format!(
                    "Somebody, most likely you, signed up with this address, which has an account already. Sign in here:\n\n{base_url}/signin\n\n\
                     If you forgot the password, this page helps:\n\n{base_url}/forgot\n\n\
                     If it was not you, do nothing: your account is as it was."
                ),
            ),
            QueuedEmailKind::PasswordReset => (
                "Choose a new password",
                format!(
                    "Open this link to choose a new password; it works once, for an hour:\n\n{link}\n\n\
                     If you did not ask for it, do nothing: your password is as it was."
                ),
            ),
            QueuedEmailKind::ConfirmEmailChange => (
                "Confirm your new address",
                format!(
                    "Open this link to use this address for your account from now on; it works once, for 24 hours:\n\n{link}\n\n\
                     If you did not ask for it, do nothing: nothing changes."
                ),
            ),
        };
        Self { subject: subject.to_owned(), text: text + SIGNATURE }
    }

    /// A mail about a key.
    pub(super) fn for_alert(alert: &QueuedAlert, base_url: &str) -> Self {
        let QueuedAlert { key, key_name: name, day, used, limit, .. } = alert;
        let key_url = format!("{base_url}/keys/{key}");
        let (subject, text) = match alert.kind {
            AlertKind::Paused => (
                format!("Paused: {name}"),
                format!(
                    "Your key \"{name}\" (ips_{key}) made more than 300 requests within 60 seconds and was paused. Its requests are refused until you resume it.\n\n\
                     See what happened, second by second, and resume it with one click:\n\n{key_url}\n\n\
                     To avoid it, spread requests out, or keep an answer for some minutes: an address rarely changes."
                ),
            ),
            AlertKind::NearQuota => (
                format!("80 % of today: {name}"),
                format!(
                    "Your key \"{name}\" (ips_{key}) has used {used} of its {limit} requests of {day}. The count begins anew at midnight UTC.\n\n{key_url}"
                ),
            ),
            AlertKind::QuotaExhausted => (
                format!("Today is used up: {name}"),
                format!(
                    "Your key \"{name}\" (ips_{key}) has used all of its {limit} requests of {day}. Further ones are refused until midnight UTC.\n\n\
                     {key_url}\n\nIf this happens often, there is more:\n\n{base_url}/enterprise"
                ),
            ),
        };
        let unsubscribe_text = format!("\n\nYou can switch these mails off: {base_url}/account");
        Self { subject, text: text + &unsubscribe_text + SIGNATURE }
    }
}
