//! Security events: what happens to an account. Most of them also send its owner an email, from the same transaction.

use ipseity_domain::KeyId;
use sqlx::{FromRow, PgConnection};

use crate::access::SecurityLog;
use crate::error::StoreError;

/// A security event. No client address is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecurityEvent {
    /// Someone signed in. Sends no email.
    SignedIn,
    /// Someone signed in with a browser that did not sign in before.
    NewDevice,
    /// The password was changed or reset.
    PasswordChanged,
    /// The email address was changed. The email goes to the previous address, with a link that restores it.
    EmailChanged,
    /// A previous email address was restored. The email goes to the one that it replaced.
    EmailRestored,
    /// A passkey was added.
    PasskeyAdded,
    /// A passkey was removed.
    PasskeyRemoved,
    /// An account of another provider was linked.
    IdentityLinked,
    /// An account of another provider was unlinked.
    IdentityUnlinked,
    /// Two-factor authentication was turned on.
    TwoFactorEnabled,
    /// Two-factor authentication was turned off.
    TwoFactorDisabled,
    /// New recovery codes replaced the old ones.
    RecoveryCodesReplaced,
    /// A recovery code was used.
    RecoveryCodeUsed,
    /// A key was created.
    KeyCreated,
    /// A key got a new secret.
    KeyRotated,
    /// A key was deleted.
    KeyDeleted,
    /// A key was found in public, and is deactivated.
    KeyLeaked,
    /// The previous secret of a rotated key was found in public and revoked.
    PreviousSecretLeaked,
    /// Alerts go to a new URL.
    AlertChannelChanged,
    /// The receiver of an alert channel is gone, so the channel is off.
    AlertChannelOff,
    /// A personal token was created.
    TokenCreated,
    /// A personal token was revoked.
    TokenRevoked,
    /// The owner chose whether personal tokens can resume paused keys.
    TokenResumeChanged,
    /// The account was deleted. The email also goes to addresses that could have been restored.
    AccountDeleted,
}

impl SecurityEvent {
    /// Every event.
    pub const ALL: [Self; 24] = [
        Self::SignedIn,
        Self::NewDevice,
        Self::PasswordChanged,
        Self::EmailChanged,
        Self::EmailRestored,
        Self::PasskeyAdded,
        Self::PasskeyRemoved,
        Self::IdentityLinked,
        Self::IdentityUnlinked,
        Self::TwoFactorEnabled,
        Self::TwoFactorDisabled,
        Self::RecoveryCodesReplaced,
        Self::RecoveryCodeUsed,
        Self::KeyCreated,
        Self::KeyRotated,
        Self::KeyDeleted,
        Self::KeyLeaked,
        Self::PreviousSecretLeaked,
        Self::AlertChannelChanged,
        Self::AlertChannelOff,
        Self::TokenCreated,
        Self::TokenRevoked,
        Self::TokenResumeChanged,
        Self::AccountDeleted,
    ];

    /// The event's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SignedIn => "signed_in",
            Self::NewDevice => "new_device",
            Self::PasswordChanged => "password",
            Self::EmailChanged => "email",
            Self::EmailRestored => "email_restored",
            Self::PasskeyAdded => "passkey",
            Self::PasskeyRemoved => "passkey_removed",
            Self::IdentityLinked => "identity_linked",
            Self::IdentityUnlinked => "identity_unlinked",
            Self::TwoFactorEnabled => "two_factor_enabled",
            Self::TwoFactorDisabled => "two_factor_disabled",
            Self::RecoveryCodesReplaced => "recovery_codes",
            Self::RecoveryCodeUsed => "recovery_code_used",
            Self::KeyCreated => "key_created",
            Self::KeyRotated => "key_rotated",
            Self::KeyDeleted => "key_deleted",
            Self::KeyLeaked => "key_leaked",
            Self::PreviousSecretLeaked => "previous_secret_leaked",
            Self::AlertChannelChanged => "alert_channel",
            Self::AlertChannelOff => "alert_channel_off",
            Self::TokenCreated => "token_created",
            Self::TokenRevoked => "token_revoked",
            Self::TokenResumeChanged => "token_resume",
            Self::AccountDeleted => "account_deleted",
        }
    }

    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }
}

/// A row of the security log.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct SecurityEventRow {
    /// When it happened, as Unix time in seconds.
    pub at_s: i64,
    /// The event's name.
    pub kind: String,
    /// The key that it is about.
    pub key_id: Option<String>,
}

impl SecurityLog<'_> {
    /// The newest events of an account.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64, count_max: i64) -> Result<Vec<SecurityEventRow>, StoreError> {
        let rows = sqlx::query_as(
            "select floor(extract(epoch from at))::bigint as at_s, kind, key_id from security_events
             where account_id = $1 order by id desc limit $2",
        )
        .bind(account_id)
        .bind(count_max)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(rows).await
    }
}

/// Adds an event to the log, and queues its email to the current address of the account. `subject` is what the email is about,
/// such as the name of a passkey.
pub(crate) async fn record_event(
    connection: &mut PgConnection,
    account_id: i64,
    event: SecurityEvent,
    subject: Option<&str>,
) -> Result<(), sqlx::Error> {
    record(connection, account_id, event, subject, None).await
}

/// The same for an event of a key.
pub(crate) async fn record_key_event(
    connection: &mut PgConnection,
    account_id: i64,
    event: SecurityEvent,
    id: KeyId,
    name: &str,
) -> Result<(), sqlx::Error> {
    record(connection, account_id, event, Some(&format!("{name} (ips_{id})")), Some(id)).await
}

async fn record(
    connection: &mut PgConnection,
    account_id: i64,
    event: SecurityEvent,
    subject: Option<&str>,
    key: Option<KeyId>,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "with logged as (insert into security_events (account_id, kind, key_id) values ($1, $2, $3))
         insert into notices (account_id, kind, subject, email, expires_at)
         select id, $2, left($4, 200), email, now() + interval '3 days' from accounts where id = $1 and $5",
    )
    .bind(account_id)
    .bind(event.name())
    .bind(key.as_ref().map(KeyId::as_str))
    .bind(subject)
    .bind(event != SecurityEvent::SignedIn)
    .execute(connection)
    .await?;
    Ok(())
}
