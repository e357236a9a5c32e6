//! Changes of the restrictions of keys.

use ipseity_domain::restrictions::origin::AllowedOrigin;
use ipseity_domain::{KeyChange, KeyId, Restrictions};
use sqlx::PgConnection;

use crate::access::Keys;
use crate::error::{StoreError, StoreRefusal};
use crate::keys::audit::Actor;
use crate::keys::record::load_updated_key;

/// The version of a change. The time of the statement, so that it has the same value wherever a statement uses it.
macro_rules! next_version {
    () => {
        "greatest(restriction_version + 1, floor(extract(epoch from statement_timestamp()) * 1000)::bigint)"
    };
}

impl Keys<'_> {
    /// Replaces the restrictions of a key. If a version is given, they must still have it.
    ///
    /// # Errors
    /// If the key does not exist, its restrictions were changed, or an operator has not confirmed that all nodes know
    /// restrictions.
    pub async fn restrict(
        self,
        actor: Actor,
        id: KeyId,
        restrictions: &Restrictions,
        expected_version: Option<u64>,
    ) -> Result<KeyChange, StoreError> {
        let restricted = async {
            let mut transaction = self.store.pool.begin().await?;
            if let Some(expected) = expected_version {
                let version: Option<i64> = sqlx::query_scalar(
                    "select restriction_version from keys
                     where id = $1 and ($2::bigint is null or account_id = $2) for update",
                )
                .bind(id.as_str())
                .bind(actor.owner_account_id())
                .fetch_optional(&mut *transaction)
                .await?;
                if version.is_some_and(|version| version.unsigned_abs() != expected) {
                    return Err(StoreRefusal::RestrictionsChanged.into());
                }
            }
            if set_restrictions(&mut transaction, actor, id, restrictions).await? {
                record_act(&mut transaction, actor, id, "restricted").await?;
            }
            let change = load_updated_key(&mut transaction, actor, id).await?;
            transaction.commit().await?;
            Ok(change)
        };
        self.store.with_timeout::<_, StoreError>(restricted).await
    }

    /// Invalidates all tickets of a key that exist now. Each carries the version of the restrictions under which it was
    /// created.
    ///
    /// # Errors
    /// If the key does not exist, or an operator has not confirmed that all nodes know restrictions.
    pub async fn invalidate_tickets(self, actor: Actor, id: KeyId) -> Result<KeyChange, StoreError> {
        let invalidated = async {
            let mut transaction = self.store.pool.begin().await?;
            ensure_enabled(&mut transaction).await?;
            let changed = sqlx::query(concat!(
                "update keys set generation = generation + 1, restriction_version = ",
                next_version!(),
                ", tickets_since = ",
                next_version!(),
                " where id = $1 and ($2::bigint is null or account_id = $2)"
            ))
            .bind(id.as_str())
            .bind(actor.owner_account_id())
            .execute(&mut *transaction)
            .await?;
            if changed.rows_affected() > 0 {
                record_act(&mut transaction, actor, id, "invalidated").await?;
            }
            let change = load_updated_key(&mut transaction, actor, id).await?;
            transaction.commit().await?;
            Ok(change)
        };
        self.store.with_timeout::<_, StoreError>(invalidated).await
    }

    /// Whether keys can be restricted.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn are_restrictions_enabled(self) -> Result<bool, StoreError> {
        let enabled = sqlx::query_scalar("select restrictions_enabled from deployment").fetch_one(&self.store.pool);
        self.store.with_timeout(enabled).await
    }

    /// Confirms that all nodes know restrictions.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn enable_restrictions(self) -> Result<(), StoreError> {
        let enabled = sqlx::query("update deployment set restrictions_enabled = true").execute(&self.store.pool);
        self.store.with_timeout(enabled).await?;
        Ok(())
    }
}

async fn ensure_enabled(connection: &mut PgConnection) -> Result<(), StoreError> {
    let is_enabled: bool =
        sqlx::query_scalar("select restrictions_enabled from deployment").fetch_one(connection).await?;
    if is_enabled { Ok(()) } else { Err(StoreRefusal::RestrictionsNotEnabled.into()) }
}

async fn record_act(connection: &mut PgConnection, actor: Actor, id: KeyId, act: &str) -> Result<(), StoreError> {
    let insert = sqlx::query("insert into history (key_id, act, actor) values ($1, $2, $3)");
    insert.bind(id.as_str()).bind(act).bind(actor.name()).execute(connection).await?;
    Ok(())
}

/// Returns whether the key was changed.
pub(crate) async fn set_restrictions(
    connection: &mut PgConnection,
    actor: Actor,
    id: KeyId,
    restrictions: &Restrictions,
) -> Result<bool, StoreError> {
    ensure_enabled(connection).await?;
    // The form does not set since when tickets are valid.
    let Restrictions { origins, networks, expires_at_s, caller_limit, daily_limit, tickets_only, tickets_since: _ } =
        restrictions;
    let origins: Vec<&str> = origins.iter().map(AllowedOrigin::as_str).collect();
    let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
    let to_i64 = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let changed = sqlx::query(concat!(
        "update keys set allowed_origins = $3, allowed_networks = $4::cidr[], expires_at = to_timestamp($5),
                caller_limit = $6, own_daily_limit = $7, tickets_only = $8, generation = generation + 1,
                restriction_version = ",
        next_version!(),
        " where id = $1 and ($2::bigint is null or account_id = $2)
           and (allowed_origins, allowed_networks, expires_at, caller_limit, own_daily_limit, tickets_only)
               is distinct from ($3, $4::cidr[], to_timestamp($5), $6, $7, $8)",
    ))
    .bind(id.as_str())
    .bind(actor.owner_account_id())
    .bind(origins)
    .bind(networks)
    .bind(expires_at_s.map(|expires_at_s| expires_at_s as f64))
    .bind(caller_limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX)))
    .bind(daily_limit.map(to_i64))
    .bind(tickets_only)
    .execute(connection)
    .await?;
    Ok(changed.rows_affected() > 0)
}
