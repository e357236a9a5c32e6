//! Single-use links with which an operator adds the first way to sign in.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::access::Operators;
use crate::error::{StoreError, StoreRefusal};
use crate::operators::credentials::{NewCredential, insert_credential};
use crate::operators::{Operator, OperatorName, OperatorRole, OperatorRow, insert_operator, lock_operators};

/// A link that can be used.
#[derive(Clone, Debug)]
pub struct OperatorLink {
    /// The operator who may use it. `None` if it makes the first operator.
    pub operator: Option<Operator>,
}

/// How a link is used.
pub struct Redemption<'a> {
    /// The digest of the link.
    pub digest: &'a [u8; 32],
    /// The name and the WebAuthn user handle of the first operator; not used if the link is for an existing one.
    pub first: Option<(&'a OperatorName, Uuid)>,
    /// What the operator signs in with.
    pub credential: NewCredential<'a>,
}

impl Operators<'_> {
    /// Saves a link that makes the first operator, for a day. Returns `false` if there is an operator.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn create_first_link(self, digest: &[u8; 32]) -> Result<bool, StoreError> {
        let created = sqlx::query(
            "insert into operator_links (digest, expires_at) select $1, now() + interval '1 day'
             where not exists (select from operators)",
        )
        .bind(digest.as_slice())
        .execute(&self.store.pool);
        Ok(self.store.with_timeout(created).await?.rows_affected() == 1)
    }

    /// Replaces the link of an operator. It expires after a week. Returns the operator's name.
    ///
    /// # Errors
    /// If the operator does not exist.
    pub async fn renew_link(self, id: i64, digest: &[u8; 32]) -> Result<String, StoreError> {
        let renewed = async {
            let mut transaction = self.store.pool.begin().await?;
            let name = replace_link(&mut transaction, id, digest).await?;
            transaction.commit().await?;
            Ok(name)
        };
        self.store.with_timeout::<_, StoreError>(renewed).await
    }

    /// Finds a link, unless it was used or has expired.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_link(self, digest: &[u8; 32]) -> Result<Option<OperatorLink>, StoreError> {
        let link = async {
            let operator_id: Option<Option<i64>> = sqlx::query_scalar(
                "select operator_id from operator_links where digest = $1 and expires_at > now()
                     and (operator_id is not null or not exists (select from operators))",
            )
            .bind(digest.as_slice())
            .fetch_optional(&self.store.pool)
            .await?;
            let Some(operator_id) = operator_id else { return Ok(None) };
            let operator: Option<OperatorRow> =
                sqlx::query_as("select id, name, role, handle from operators where id = $1")
                    .bind(operator_id)
                    .fetch_optional(&self.store.pool)
                    .await?;
            Ok(Some(OperatorLink { operator: operator.map(OperatorRow::into_operator) }))
        };
        self.store.with_timeout::<_, sqlx::Error>(link).await
    }

    /// Uses a link: adds a credential to its operator, or makes the first one, an admin. Returns the operator's id.
    ///
    /// # Errors
    /// If the link was used or has expired, or the credential belongs to an operator.
    pub async fn redeem_link(self, redemption: Redemption<'_>) -> Result<i64, StoreError> {
        let redeemed = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_operators(&mut transaction).await?;
            let used: Option<Option<i64>> = sqlx::query_scalar(
                "delete from operator_links where digest = $1 and expires_at > now()
                     and (operator_id is not null or not exists (select from operators)) returning operator_id",
            )
            .bind(redemption.digest.as_slice())
            .fetch_optional(&mut *transaction)
            .await?;
            let id = match (used, redemption.first) {
                (Some(Some(id)), _) => id,
                (Some(None), Some((name, handle))) => {
                    insert_operator(&mut transaction, name, OperatorRole::Admin, Some(handle)).await?
                }
                _ => return Err(StoreRefusal::InvalidOperatorLink.into()),
            };
            insert_credential(&mut transaction, id, &redemption.credential).await?;
            transaction.commit().await?;
            Ok(id)
        };
        self.store.with_timeout::<_, StoreError>(redeemed).await
    }
}

pub(crate) async fn replace_link(
    connection: &mut PgConnection,
    id: i64,
    digest: &[u8; 32],
) -> Result<String, StoreError> {
    sqlx::query("delete from operator_links where operator_id = $1").bind(id).execute(&mut *connection).await?;
    let name = sqlx::query_scalar(
        "with added as (
             insert into operator_links (digest, operator_id, expires_at)
             select $2, id, now() + interval '7 days' from operators where id = $1 returning operator_id
         )
         select o.name from operators o join added on added.operator_id = o.id",
    )
    .bind(id)
    .bind(digest.as_slice())
    .fetch_optional(connection)
    .await?;
    name.ok_or_else(|| StoreRefusal::UnknownOperator.into())
}
