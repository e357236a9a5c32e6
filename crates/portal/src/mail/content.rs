//! Subjects and texts of emails.

use ipseity_store::{AlertKind, NoticeKind, QueuedAlert, QueuedEmailKind, RESTORE_EMAIL_DAYS};

use crate::auth::session_cookie::SecretToken;

/// Subject and text of an email.
pub(crate) struct EmailContent {
    pub(super) subject: String,
    pub(super) text: String,
}

const SIGNATURE: &str = "\n\nIpseity\n";

impl EmailContent {
    /// An email about the account. Most kinds contain a link with the token.
    pub(crate) fn for_email_token(kind: QueuedEmailKind, base_url: &str, token: &SecretToken) -> Self {
        let link = format!("{base_url}/link/{}", token.expose());
        let (subject, text) = match kind {
            QueuedEmailKind::ConfirmSignUp => (
                "Confirm your email for Ipseity",
                format!(
                    "Welcome to Ipseity. Open this link to finish signing up. It works once, for 24 hours:\n\n{link}\n\n\
                     Didn't sign up? Ignore this email. No account will be created."
                ),
            ),
            QueuedEmailKind::AlreadyRegistered => (
                "You already have an Ipseity account",
                format!(
                    "This email already has an Ipseity account. Sign in here:\n\n{base_url}/signin\n\n\
                     Forgot your password? Reset it here:\n\n{base_url}/forgot\n\n\
                     Didn't sign up? Ignore this email. Your account hasn't changed."
                ),
            ),
            QueuedEmailKind::PasswordReset => (
                "Reset your Ipseity password",
                format!(
                    "Open this link to choose a new password for Ipseity. It works once, for one hour:\n\n{link}\n\n\
                     Didn't request this? Ignore this email. Your password hasn't changed."
                ),
            ),
            QueuedEmailKind::ConfirmEmailChange => (
                "Confirm your new email for Ipseity",
                format!(
                    "Open this link to use this address for your Ipseity account. It works once, for 24 hours:\n\n{link}\n\n\
                     Didn't request this? Ignore this email. Nothing will change."
                ),
            ),
        };
        Self { subject: subject.to_owned(), text: text + SIGNATURE }
    }

    /// A warning about a change of the account.
    pub(crate) fn for_notice(kind: NoticeKind, base_url: &str, token: &SecretToken) -> Self {
        let (subject, text) = match kind {
            NoticeKind::PasskeyAdded => (
                "A passkey was added to your Ipseity account",
                format!(
                    "A passkey was added to your Ipseity account. It can be used to sign in.\n\n\
                     Wasn't it you? Reset your password. This also removes all passkeys and signs out all devices:\n\n{base_url}/forgot"
                ),
            ),
            NoticeKind::EmailChanged => (
                "The email of your Ipseity account was changed",
                format!(
                    "Your Ipseity account has a new email address. Emails no longer go to this one.\n\n\
                     Wasn't it you? Open this link to restore this address and choose a new password. This also removes all passkeys and \
                     signs out all devices. It works once, for at least {RESTORE_EMAIL_DAYS} days:\n\n{base_url}/link/{}",
                    token.expose()
                ),
            ),
            NoticeKind::EmailRestored => (
                "The email of your Ipseity account was changed back",
                "Your Ipseity account has its previous email address again. Emails no longer go to this one.\n\n\
                 Wasn't it you? Someone with access to the previous address did it."
                    .to_owned(),
            ),
        };
        Self { subject: subject.to_owned(), text: text + SIGNATURE }
    }

    /// An alert about a key.
    pub(crate) fn for_alert(alert: &QueuedAlert, base_url: &str) -> Self {
        let QueuedAlert { key, key_name: name, day, used, limit, .. } = alert;
        let key_url = format!("{base_url}/keys/{key}");
        let (subject, text) = match alert.kind {
            AlertKind::Paused => (
                format!("Ipseity: {name} was paused"),
                format!(
                    "Your key \"{name}\" (ips_{key}) made more than 300 requests in 60 seconds and was paused. Its requests are rejected until you resume it.\n\n\
                     See the requests second by second, and resume the key:\n\n{key_url}\n\n\
                     To avoid this, spread requests out or cache responses for a few minutes. IP addresses rarely change sooner."
                ),
            ),
            AlertKind::NearQuota => (
                format!("Ipseity: {name} has used 80% of today's quota"),
                format!(
                    "Your key \"{name}\" (ips_{key}) has used {used} of its {limit} requests for {day}. The quota resets at 00:00 UTC.\n\n{key_url}"
                ),
            ),
            AlertKind::QuotaExhausted => (
                format!("Ipseity: {name} reached its daily quota"),
                format!(
                    "Your key \"{name}\" (ips_{key}) has used all {limit} requests for {day}. Its requests are rejected until the quota resets at 00:00 UTC.\n\n\
                     {key_url}\n\nNeed a higher limit?\n\n{base_url}/enterprise"
                ),
            ),
        };
        let unsubscribe_text = format!("\n\nTurn these alerts off: {base_url}/account");
        Self { subject, text: text + &unsubscribe_text + SIGNATURE }
    }
}
