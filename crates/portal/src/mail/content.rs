//! Subjects and texts of emails.

use ipseity_store::{AlertKind, QueuedAlert, QueuedEmailKind, QueuedNotice, RESTORE_EMAIL_DAYS, SecurityEvent};

use crate::alerts::message::{headline, page_url, sentence};
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
            SecurityEvent::IdentityLinked => (
                "An account was linked to your Ipseity account",
                format!("An account of another provider was linked to your Ipseity account: {subject}. It can be used to sign in."),
            ),
            SecurityEvent::IdentityUnlinked => (
                "An account was unlinked from your Ipseity account",
                format!(
                    "An account of another provider was unlinked from your Ipseity account: {subject}. It can no longer be used \
                     to sign in."
                ),
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
            SecurityEvent::AlertChannelChanged => (
                "Alerts about your Ipseity keys go to a new address",
                format!("Alerts about your keys now go to {subject}. See where they go:\n\n{base_url}/account/alerts"),
            ),
            SecurityEvent::AlertChannelOff => (
                "Alerts about your Ipseity keys are no longer sent to a channel",
                format!(
                    "The receiver at {subject} answered that it is gone (410), so its channel gets no more alerts. Turn it on again or \
                     delete it:\n\n{base_url}/account/alerts"
                ),
            ),
            SecurityEvent::TokenCreated | SecurityEvent::TokenRevoked | SecurityEvent::TokenResumeChanged => {
                token_text(notice.event, subject, base_url)
            }
            SecurityEvent::AccountDeleted => (
                "Your Ipseity account was deleted",
                "Your Ipseity account was deleted with its keys. This cannot be undone.".to_owned(),
            ),
        };
        let advice = notice_advice(notice.event, base_url);
        Self { subject: title.to_owned(), text: format!("{text}\n\n{advice}{SIGNATURE}") }
    }

    fn for_email_change(base_url: &str, token: &SecretToken) -> Self {
        let text = format!(
            "Your Ipseity account has a new email address. Emails no longer go to this one.\n\n\
             Wasn't it you? Open this link to restore this address and choose a new password. This also removes all passkeys, \
             linked accounts and personal tokens, and signs out all devices. It works once, for at least {RESTORE_EMAIL_DAYS} days:\n\n{base_url}/link/{}{SIGNATURE}",
            token.expose()
        );
        Self { subject: "The email of your Ipseity account was changed".to_owned(), text }
    }

    /// An alert about a key.
    pub(crate) fn for_alert(alert: &QueuedAlert, base_url: &str) -> Self {
        let page = page_url(alert, base_url).unwrap_or_else(|| format!("{base_url}/keys"));
        let more = match alert.kind {
            AlertKind::Paused => format!(
                "See the requests second by second:\n\n{page}\n\nResume the key:\n\n{base_url}/keys/{}\n\n\
                 To avoid this, spread requests out or cache responses for a few minutes. IP addresses rarely change sooner.",
                alert.key_id
            ),
            AlertKind::NearBurstLimit => format!(
                "To avoid a pause, spread requests out or cache responses for a few minutes. IP addresses rarely change \
                 sooner.\n\n{page}"
            ),
            AlertKind::DailyLimitReached => format!("{page}\n\nNeed a higher limit?\n\n{base_url}/account/limits"),
            AlertKind::Expiring => format!("Remove or change the date:\n\n{page}"),
            AlertKind::Resumed
            | AlertKind::NearDailyLimit
            | AlertKind::Created
            | AlertKind::Rotated
            | AlertKind::Deleted
            | AlertKind::Test => page,
        };
        let settings_text = format!("\n\nChoose your alerts: {base_url}/account/alerts");
        Self { subject: headline(alert), text: format!("{}\n\n{more}{settings_text}{SIGNATURE}", sentence(alert)) }
    }
}

/// What to do if it was somebody else.
fn notice_advice(event: SecurityEvent, base_url: &str) -> String {
    if event == SecurityEvent::EmailRestored {
        "Wasn't it you? Someone with access to the previous address did it.".to_owned()
    } else if event == SecurityEvent::AccountDeleted {
        "Wasn't it you? Contact the administrator of the site.".to_owned()
    } else if event == SecurityEvent::AlertChannelOff {
        "Emails and your other channels are not affected.".to_owned()
    } else if event == SecurityEvent::AlertChannelChanged {
        format!(
            "Wasn't it you? Reset your password. This also removes all passkeys, linked accounts and personal tokens, and signs out all \
             devices. It does not delete channels, so delete this one afterwards.\n\n{base_url}/forgot"
        )
    } else if event == SecurityEvent::TwoFactorEnabled {
        "Wasn't it you? Contact the administrator of the site, who can turn it off. Then reset your password."
            .to_owned()
    } else {
        format!(
            "Wasn't it you? Reset your password. This also removes all passkeys, linked accounts and personal tokens, and signs out all devices:\n\n{base_url}/forgot"
        )
    }
}

/// The title and the text of a notice about personal tokens.
fn token_text(event: SecurityEvent, subject: &str, base_url: &str) -> (&'static str, String) {
    let page = format!("{base_url}/account/tokens");
    if event == SecurityEvent::TokenCreated {
        let title = "A personal token of your Ipseity account was created";
        let text = "Programs with it can use the management API. See or revoke your tokens:";
        (title, format!("A personal token was created: {subject}. {text}\n\n{page}"))
    } else if event == SecurityEvent::TokenRevoked {
        let title = "A personal token of your Ipseity account was revoked";
        (title, format!("A personal token was revoked: {subject}. Programs with it no longer have access."))
    } else {
        let title = "What personal tokens of your Ipseity account can do was changed";
        (title, format!("Personal tokens {subject} resume paused keys of your account. Change it:\n\n{page}"))
    }
}
