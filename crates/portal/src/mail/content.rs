//! Subjects and texts of emails.

use ipseity_store::{AlertKind, QueuedAlert, QueuedEmailKind, QueuedNotice, RESTORE_EMAIL_DAYS, SecurityEvent};

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

    /// An email about a security event. The token is for the link that restores a previous address.
    pub(crate) fn for_notice(notice: &QueuedNotice, base_url: &str, token: &SecretToken) -> Self {
        let subject = notice.subject.as_deref().unwrap_or_default();
        let (title, text) = match notice.event {
            SecurityEvent::SignedIn | SecurityEvent::NewDevice => (
                "New sign-in to your Ipseity account",
                format!("Someone signed in to your Ipseity account with a new browser: {subject}."),
            ),
            SecurityEvent::PasswordChanged => (
                "The password of your Ipseity account was changed",
                "The password of your Ipseity account was changed. Other devices were signed out.".to_owned(),
            ),
            SecurityEvent::EmailChanged => return Self::for_email_change(base_url, token),
            SecurityEvent::EmailRestored => (
                "The email of your Ipseity account was changed back",
                "Your Ipseity account has its previous email address again. Emails no longer go to this one.".to_owned(),
            ),
            SecurityEvent::PasskeyAdded => (
                "A passkey was added to your Ipseity account",
                format!("A passkey was added to your Ipseity account: {subject}. It can be used to sign in."),
            ),
            SecurityEvent::PasskeyRemoved => (
                "A passkey was removed from your Ipseity account",
                format!("A passkey was removed from your Ipseity account: {subject}."),
            ),
            SecurityEvent::TwoFactorEnabled => (
                "Two-factor authentication is on for your Ipseity account",
                "Two-factor authentication was turned on for your Ipseity account. Keep your recovery codes in a safe place."
                    .to_owned(),
            ),
            SecurityEvent::TwoFactorDisabled => (
                "Two-factor authentication is off for your Ipseity account",
                "Two-factor authentication was turned off for your Ipseity account. Your password is enough to sign in."
                    .to_owned(),
            ),
            SecurityEvent::RecoveryCodesReplaced => (
                "Your Ipseity recovery codes were replaced",
                "Your Ipseity account has new recovery codes. The old ones no longer work.".to_owned(),
            ),
            SecurityEvent::RecoveryCodeUsed => (
                "A recovery code of your Ipseity account was used",
                format!(
                    "A recovery code was used for your Ipseity account. See how many are left:\n\n{base_url}/account/two-factor"
                ),
            ),
            SecurityEvent::KeyCreated => ("An Ipseity key was created", format!("A key was created in your account: {subject}.")),
            SecurityEvent::KeyRotated => (
                "An Ipseity key was rotated",
                format!("A key in your account has a new secret: {subject}."),
            ),
            SecurityEvent::KeyDeleted => ("An Ipseity key was deleted", format!("A key in your account was deleted: {subject}.")),
            SecurityEvent::KeyLeaked => (
                "An Ipseity key was found in public and deactivated",
                format!(
                    "Someone reported a key of yours that was found in public: {subject}. It is deactivated, so its requests are \
                     rejected.\n\nRemove it from where it was published. Rotate the key, then reactivate it:\n\n{base_url}/keys"
                ),
            ),
            SecurityEvent::PreviousSecretLeaked => (
                "An old secret of an Ipseity key was found in public",
                format!(
                    "Someone reported the secret that a key of yours had before its rotation: {subject}. We revoked it. The current \
                     secret still works.\n\nRemove the old one from where it was published."
                ),
            ),
            SecurityEvent::AccountDeleted => (
                "Your Ipseity account was deleted",
                "Your Ipseity account was deleted with its keys. This cannot be undone.".to_owned(),
            ),
        };
        let advice = if notice.event == SecurityEvent::EmailRestored {
            "Wasn't it you? Someone with access to the previous address did it.".to_owned()
        } else if notice.event == SecurityEvent::AccountDeleted {
            "Wasn't it you? Contact the administrator of the site.".to_owned()
        } else if notice.event == SecurityEvent::TwoFactorEnabled {
            "Wasn't it you? Contact the administrator of the site, who can turn it off. Then reset your password."
                .to_owned()
        } else {
            format!(
                "Wasn't it you? Reset your password. This also removes all passkeys and signs out all devices:\n\n{base_url}/forgot"
            )
        };
        Self { subject: title.to_owned(), text: format!("{text}\n\n{advice}{SIGNATURE}") }
    }

    fn for_email_change(base_url: &str, token: &SecretToken) -> Self {
        let text = format!(
            "Your Ipseity account has a new email address. Emails no longer go to this one.\n\n\
             Wasn't it you? Open this link to restore this address and choose a new password. This also removes all passkeys and \
             signs out all devices. It works once, for at least {RESTORE_EMAIL_DAYS} days:\n\n{base_url}/link/{}{SIGNATURE}",
            token.expose()
        );
        Self { subject: "The email of your Ipseity account was changed".to_owned(), text }
    }

    /// An alert about a key.
    pub(crate) fn for_alert(alert: &QueuedAlert, base_url: &str) -> Self {
        let QueuedAlert { key, key_name: name, day, burst_epoch, used, limit, .. } = alert;
        let key_url = format!("{base_url}/keys/{key}");
        let (subject, text) = match alert.kind {
            AlertKind::Paused => (
                format!("Ipseity: {name} was paused"),
                format!(
                    "Your key \"{name}\" (ips_{key}) made more than 300 requests in 60 seconds and was paused. Its requests are rejected until you resume it.\n\n\
                     See the requests second by second:\n\n{key_url}/pauses/{burst_epoch}\n\nResume the key:\n\n{key_url}\n\n\
                     To avoid this, spread requests out or cache responses for a few minutes. IP addresses rarely change sooner."
                ),
            ),
            AlertKind::NearQuota => (
                format!("Ipseity: {name} is near its daily limit (80% used)"),
                format!(
                    "Your key \"{name}\" (ips_{key}) has used {used} of its {limit} requests for {day}. It resets at 00:00 UTC.\n\n{key_url}"
                ),
            ),
            AlertKind::QuotaExhausted => (
                format!("Ipseity: {name} reached its daily limit"),
                format!(
                    "Your key \"{name}\" (ips_{key}) has used all {limit} requests for {day}. Its requests are rejected until the daily limit resets at 00:00 UTC.\n\n\
                     {key_url}\n\nNeed a higher limit?\n\n{base_url}/enterprise"
                ),
            ),
        };
        let unsubscribe_text = format!("\n\nTurn these alerts off: {base_url}/account");
        Self { subject, text: text + &unsubscribe_text + SIGNATURE }
    }
}
