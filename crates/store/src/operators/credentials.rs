//! What operators sign in with: passkeys, and accounts of other providers. The JSON of a passkey is opaque to the store.

use serde_json::Value;
use sqlx::{FromRow, PgConnection};
use uuid::Uuid;

use crate::access::Operators;
use crate::error::{StoreError, StoreRefusal, violates_constraint};

/// Maximum number of passkeys, and of accounts of other providers, per operator.
const CREDENTIALS_MAX: i64 = 10;

/// What an operator will sign in with.
pub enum NewCredential<'a> {
    /// A passkey.
    Passkey {
        /// The WebAuthn credential id.
        id: &'a [u8],
        /// Its name. Truncated to 60 characters.
        name: &'a str,
        /// The passkey as JSON.
        passkey: &'a Value,
    },
    /// An account of another provider.
    Identity {
        /// The provider.
        issuer: &'a str,
        /// The account.
        subject: &'a str,
        /// What the provider calls the account, such as its email address.
        label: &'a str,
    },
}

/// A passkey with its operator.
#[derive(Clone, Debug, FromRow)]
pub struct OperatorPasskey {
    /// The operator.
    pub operator_id: i64,
    /// The operator's WebAuthn user handle.
    pub user_handle: Uuid,
    /// The passkey as JSON.
    pub passkey: Value,
}

/// A credential, as its operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct OperatorCredential {
    /// The id among credentials of this kind.
    pub id: i64,
    /// Its name: that of the passkey, or what the provider calls the account.
    pub name: String,
    /// The provider; `None` for a passkey.
    pub issuer: Option<String>,
    /// The WebAuthn credential id of a passkey.
    pub credential_id: Option<Vec<u8>>,
    /// When it was added, as Unix time in seconds.
    pub created_s: i64,
}

impl Operators<'_> {
    /// The passkeys and then the other accounts of an operator, oldest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn credentials(self, operator_id: i64) -> Result<Vec<OperatorCredential>, StoreError> {
        let found = sqlx::query_as(
            "select id, name, null as issuer, credential_id, floor(extract(epoch from created_at))::bigint as created_s
             from operator_passkeys where operator_id = $1
             union all
             select id, label, issuer, null, floor(extract(epoch from created_at))::bigint
             from operator_identities where operator_id = $1
             order by issuer nulls first, id",
        )
        .bind(operator_id)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// Adds a credential to an operator.
    ///
    /// # Errors
    /// If it belongs to an operator, or the operator has ten of its kind or does not exist.
    pub async fn add_credential(self, operator_id: i64, credential: &NewCredential<'_>) -> Result<(), StoreError> {
        let added = async {
            let mut transaction = self.store.pool.begin().await?;
            insert_credential(&mut transaction, operator_id, credential).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(added).await
    }

    /// Removes one of an operator's credentials: a passkey, or an account of another provider.
    ///
    /// # Errors
    /// If the operator has no such credential, or no other.
    pub async fn remove_credential(self, operator_id: i64, is_passkey: bool, id: i64) -> Result<(), StoreError> {
        let removed = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_operator(&mut transaction, operator_id).await?;
            let sql = match is_passkey {
                true => "delete from operator_passkeys where operator_id = $1 and id = $2",
                false => "delete from operator_identities where operator_id = $1 and id = $2",
            };
            let removed = sqlx::query(sql).bind(operator_id).bind(id).execute(&mut *transaction).await?;
            if removed.rows_affected() == 0 {
                return Err(StoreRefusal::UnknownOperator.into());
            }
            let has_other: bool = sqlx::query_scalar(
                "select exists (select from operator_passkeys where operator_id = $1)
                     or exists (select from operator_identities where operator_id = $1)",
            )
            .bind(operator_id)
            .fetch_one(&mut *transaction)
            .await?;
            if !has_other {
                return Err(StoreRefusal::LastCredential.into());
            }
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(removed).await
    }

    /// Finds a passkey and its operator.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_passkey(self, credential_id: &[u8]) -> Result<Option<OperatorPasskey>, StoreError> {
        let found = sqlx::query_as(
            "select p.operator_id, o.handle as user_handle, p.passkey
             from operator_passkeys p join operators o on o.id = p.operator_id where p.credential_id = $1",
        )
        .bind(credential_id)
        .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// Stores a passkey after use, for example with a new counter.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn update_passkey(self, credential_id: &[u8], passkey: &Value) -> Result<(), StoreError> {
        let updated = sqlx::query("update operator_passkeys set passkey = $2 where credential_id = $1")
            .bind(credential_id)
            .bind(passkey)
            .execute(&self.store.pool);
        self.store.with_timeout(updated).await?;
        Ok(())
    }

    /// Finds the operator who signs in with an account of another provider.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_identity(self, issuer: &str, subject: &str) -> Result<Option<i64>, StoreError> {
        let found =
            sqlx::query_scalar("select operator_id from operator_identities where issuer = $1 and subject = $2")
                .bind(issuer)
                .bind(subject)
                .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await
    }
}

/// Keeps others from changing the credentials of an operator.
async fn lock_operator(connection: &mut PgConnection, id: i64) -> Result<(), StoreError> {
    let found = sqlx::query("select from operators where id = $1 for update").bind(id).fetch_optional(connection);
    if found.await?.is_some() { Ok(()) } else { Err(StoreRefusal::UnknownOperator.into()) }
}

pub(crate) async fn insert_credential(
    connection: &mut PgConnection,
    operator_id: i64,
    credential: &NewCredential<'_>,
) -> Result<(), StoreError> {
    lock_operator(connection, operator_id).await?;
    let insertion = match credential {
        NewCredential::Passkey { id, name, passkey } => sqlx::query(
            "insert into operator_passkeys (operator_id, credential_id, name, passkey) select $1, $2, left($3, 60), $4
             where (select count(*) from operator_passkeys where operator_id = $1) < $5",
        )
        .bind(operator_id)
        .bind(*id)
        .bind(*name)
        .bind(*passkey),
        NewCredential::Identity { issuer, subject, label } => sqlx::query(
            "insert into operator_identities (operator_id, issuer, subject, label) select $1, $2, $3, left($4, 254)
             where (select count(*) from operator_identities where operator_id = $1) < $5",
        )
        .bind(operator_id)
        .bind(*issuer)
        .bind(*subject)
        .bind(*label),
    };
    let inserted = insertion.bind(CREDENTIALS_MAX).execute(connection).await.map_err(|error| {
        let constraints = ["operator_passkeys_credential_id_key", "operator_identities_subject_key"];
        let is_taken = constraints.iter().any(|constraint| violates_constraint(&error, constraint));
        if is_taken { StoreRefusal::PasskeyExists.into() } else { StoreError::from(error) }
    })?;
    if inserted.rows_affected() == 1 { Ok(()) } else { Err(StoreRefusal::PasskeyLimitReached.into()) }
}
