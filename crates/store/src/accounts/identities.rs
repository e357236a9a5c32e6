//! Accounts of other providers with which members sign in. An identity is an issuer and a subject, and never an email address.

use sqlx::{FromRow, PgConnection};

use crate::access::Identities;
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::accounts::{lock_account, require_session};
use crate::error::{StoreError, StoreRefusal};

/// Maximum number of identities per account.
const IDENTITIES_MAX: i64 = 10;

/// An identity to be linked.
#[derive(Clone, Copy, Debug)]
pub struct NewIdentity<'a> {
    /// The provider.
    pub issuer: &'a str,
    /// The provider's identifier of the person.
    pub subject: &'a str,
    /// What the provider calls the account, such as its email address. Truncated to 254 characters.
    pub label: &'a str,
}

/// A linked identity, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct LinkedIdentity {
    /// The identity's id.
    pub id: i64,
    /// The provider.
    pub issuer: String,
    /// What the provider called the account when it was linked.
    pub label: String,
    /// When it was linked, as Unix time in seconds.
    pub created_s: i64,
    /// When it last signed in, as Unix time in seconds.
    pub used_s: Option<i64>,
}

impl Identities<'_> {
    /// The identities of an account, oldest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, account_id: i64) -> Result<Vec<LinkedIdentity>, StoreError> {
        let rows = sqlx::query_as(
            "select id, issuer, label, floor(extract(epoch from created_at))::bigint as created_s,
                    floor(extract(epoch from used_at))::bigint as used_s
             from identities where account_id = $1 order by id",
        )
        .bind(account_id)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(rows).await
    }

    /// Links an identity to an account, and notifies its owner. Returns false if it was linked to this account before.
    ///
    /// # Errors
    /// If it is linked to another account, the account has ten identities or does not exist, or the session has ended.
    pub async fn link(self, account_id: i64, session_id: i64, identity: &NewIdentity<'_>) -> Result<bool, StoreError> {
        let linked = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_account(&mut transaction, account_id).await?;
            require_session(&mut transaction, account_id, session_id).await?;
            let name: Option<String> = sqlx::query_scalar(
                "insert into identities (account_id, issuer, subject, label) select $1, $2, $3, left($4, 254)
                 where (select count(*) from identities where account_id = $1) < $5
                 on conflict on constraint identities_subject_key do nothing
                 returning label || ' (' || issuer || ')'",
            )
            .bind(account_id)
            .bind(identity.issuer)
            .bind(identity.subject)
            .bind(identity.label)
            .bind(IDENTITIES_MAX)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(name) = name else {
                return require_own(&mut transaction, account_id, identity).await.map(|()| false);
            };
            record_event(&mut transaction, account_id, SecurityEvent::IdentityLinked, Some(&name)).await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.store.with_timeout::<_, StoreError>(linked).await
    }

    /// Unlinks one of an account's identities, and notifies its owner. Sign-ins of the account that wait for a second factor end.
    /// Returns false if the account has no such identity.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn unlink(self, account_id: i64, session_id: i64, id: i64) -> Result<bool, StoreError> {
        let unlinked = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_account(&mut transaction, account_id).await?;
            require_session(&mut transaction, account_id, session_id).await?;
            let name: Option<String> = sqlx::query_scalar(
                "with unlinked as (
                     delete from identities where account_id = $1 and id = $2 returning label || ' (' || issuer || ')' as name
                 ), ended_sign_ins as (
                     delete from pending_sign_ins where account_id = $1 and exists (select from unlinked)
                 )
                 select name from unlinked",
            )
            .bind(account_id)
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(name) = name else { return Ok(false) };
            record_event(&mut transaction, account_id, SecurityEvent::IdentityUnlinked, Some(&name)).await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.store.with_timeout::<_, StoreError>(unlinked).await
    }

    /// Finds the account that signs in with an identity, and the id of the identity, and records the use.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_account(self, issuer: &str, subject: &str) -> Result<Option<(i64, i64)>, StoreError> {
        let found = sqlx::query_as(
            "update identities set used_at = now() where issuer = $1 and subject = $2 returning account_id, id",
        )
        .bind(issuer)
        .bind(subject)
        .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }
}

/// Explains why an identity was not added, unless the account has it.
async fn require_own(
    connection: &mut PgConnection,
    account_id: i64,
    identity: &NewIdentity<'_>,
) -> Result<(), StoreError> {
    let owner: Option<i64> = sqlx::query_scalar("select account_id from identities where issuer = $1 and subject = $2")
        .bind(identity.issuer)
        .bind(identity.subject)
        .fetch_optional(connection)
        .await?;
    match owner {
        Some(owner) if owner == account_id => Ok(()),
        Some(_) => Err(StoreRefusal::IdentityTaken.into()),
        None => Err(StoreRefusal::IdentityLimitReached.into()),
    }
}

/// Checks that an account still has an identity. The caller holds the lock of the account, as every change of its identities does.
pub(crate) async fn require_identity(
    connection: &mut PgConnection,
    account_id: i64,
    id: i64,
) -> Result<(), StoreError> {
    let found: Option<i64> = sqlx::query_scalar("select id from identities where id = $1 and account_id = $2")
        .bind(id)
        .bind(account_id)
        .fetch_optional(connection)
        .await?;
    found.map(drop).ok_or_else(|| StoreRefusal::SessionEnded.into())
}

/// Unlinks all identities of an account, and notifies its owner.
pub(crate) async fn unlink_all(connection: &mut PgConnection, account_id: i64) -> Result<(), sqlx::Error> {
    let names: Vec<String> =
        sqlx::query_scalar("delete from identities where account_id = $1 returning label || ' (' || issuer || ')'")
            .bind(account_id)
            .fetch_all(&mut *connection)
            .await?;
    for name in names {
        record_event(connection, account_id, SecurityEvent::IdentityUnlinked, Some(&name)).await?;
    }
    Ok(())
}
