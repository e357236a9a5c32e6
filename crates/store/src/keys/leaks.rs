//! Keys that were found in public.

use ipseity_domain::{ApiKey, KeyChange};
use sqlx::PgConnection;

use crate::access::Keys;
use crate::accounts::security_log::SecurityEvent;
use crate::error::StoreError;
use crate::keys::audit::Actor;
use crate::keys::{key_update_sql, load_updated_key, record_event_of};

/// What the report of a key led to.
#[derive(Clone, Debug)]
pub enum LeakedKey {
    /// No key has this secret.
    Unknown,
    /// The secret did not work anyway.
    AlreadyInvalid,
    /// The key was deactivated, or the secret revoked if it was the previous one.
    Invalidated(KeyChange),
}

impl Keys<'_> {
    /// Deactivates a key that was found in public, or revokes its previous secret if that was found, and notifies its owner.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn deactivate_leaked(self, key: &ApiKey) -> Result<LeakedKey, StoreError> {
        const DEACTIVATE: &str = key_update_sql!(
            "deactivated",
            "deactivated_at = now(), generation = generation + 1",
            "deactivated_at is null and digest = $4"
        );
        // The digest stays, so that a repeated report is recognized. The clock of Redis may be behind.
        const REVOKE_PREVIOUS: &str = key_update_sql!(
            "retired",
            "retired_until = to_timestamp(0), generation = generation + 1",
            "deactivated_at is null and retired_until > now() and retired_digest = $4"
        );
        let changed = async {
            let mut transaction = self.store.pool.begin().await?;
            for (statement, event) in
                [(DEACTIVATE, SecurityEvent::KeyLeaked), (REVOKE_PREVIOUS, SecurityEvent::PreviousSecretLeaked)]
            {
                let changed = sqlx::query(statement)
                    .bind(key.id.as_str())
                    .bind(None::<i64>)
                    .bind("service")
                    .bind(key.digest.as_bytes().as_slice())
                    .execute(&mut *transaction)
                    .await?;
                if changed.rows_affected() > 0 {
                    record_event_of(&mut transaction, event, key.id).await?;
                    let change = load_updated_key(&mut transaction, Actor::Operator, key.id).await?;
                    transaction.commit().await?;
                    return Ok(LeakedKey::Invalidated(change));
                }
            }
            let leaked = note_invalid_leak(&mut transaction, key).await?;
            transaction.commit().await?;
            Ok(leaked)
        };
        self.store.with_timeout::<_, StoreError>(changed).await
    }
}

/// Records that the secret of an inactive key was found in public, once for each secret: the owner must not reactivate it.
async fn note_invalid_leak(connection: &mut PgConnection, key: &ApiKey) -> Result<LeakedKey, sqlx::Error> {
    let is_news: Option<bool> = sqlx::query_scalar(
        "select digest = $2 and deactivated_at is not null and not exists (
             select from security_events e where e.account_id = k.account_id and e.key_id = k.id and e.kind = $3
                 and e.at >= coalesce((select max(at) from history where key_id = k.id and act = 'rolled'), '-infinity'))
         from keys k where id = $1 and (digest = $2 or retired_digest = $2) for update",
    )
    .bind(key.id.as_str())
    .bind(key.digest.as_bytes().as_slice())
    .bind(SecurityEvent::KeyLeaked.name())
    .fetch_optional(&mut *connection)
    .await?;
    let Some(is_news) = is_news else { return Ok(LeakedKey::Unknown) };
    if is_news {
        record_event_of(connection, SecurityEvent::KeyLeaked, key.id).await?;
    }
    Ok(LeakedKey::AlreadyInvalid)
}
