//! Keys: creation and changes. Each change and its history row are one transaction.

pub(crate) mod audit;
pub(crate) mod leaks;
pub(crate) mod outbox;
pub(crate) mod pauses;
pub(crate) mod record;
pub(crate) mod restrictions;
mod restrictions_row;
pub(crate) mod search;
pub(crate) mod summary;

use ipseity_domain::account::KeyName;
use ipseity_domain::{ApiKey, BURST_WINDOW_S, KeyChange, KeyId, LimitOverrides, Restrictions, Scope};
use sqlx::PgConnection;

use crate::access::Keys;
use crate::accounts::security_log::{SecurityEvent, record_key_event};
use crate::accounts::{self, Account, OverridesRow};
use crate::error::{StoreError, StoreRefusal};
use crate::keys::audit::Actor;
use crate::keys::record::load_updated_key;
use crate::usage::usage_lock;

/// Minimum time between two resumes by the owner, in seconds.
const RESUME_INTERVAL_S: f64 = BURST_WINDOW_S as f64;

/// Updates the key $1 (of the account $2, if given). If it changed, adds a history row of the actor $3.
macro_rules! key_update_sql {
    ($act:literal, $set:literal, $when:literal) => {
        concat!(
            "with changed as (update keys set ",
            $set,
            " where id = $1 and ($2::bigint is null or account_id = $2) and ",
            $when,
            " returning id) insert into history (key_id, act, actor) select id, '",
            $act,
            "', $3 from changed"
        )
    };
}
pub(crate) use key_update_sql;

impl Keys<'_> {
    /// Creates a key.
    ///
    /// # Errors
    /// If the account has as many keys as it may have, does not exist, or is not the actor's, or if restrictions are not enabled.
    pub async fn create(
        self,
        account: &Account,
        actor: Actor,
        name: &KeyName,
        scope: Scope,
        key: &ApiKey,
        restrictions: &Restrictions,
    ) -> Result<(), StoreError> {
        let issued = async {
            let mut transaction = self.store.pool.begin().await?;
            // The lock serializes concurrent calls, which take the lowest free slot.
            if actor.owner_account_id().is_some_and(|id| id != account.id)
                || !accounts::lock_account(&mut transaction, account.id).await?
            {
                return Err(StoreRefusal::UnknownAccount.into());
            }
            let issued = sqlx::query(
                "with issued as (
                     insert into keys (id, account_id, seat, name, scope, digest)
                     select $1, $2, seat, $3, $4, $5
                     from account_limits l, generate_series(1, l.keys_max) seat
                     where l.account_id = $2
                         and (select count(*) from keys where account_id = $2) < l.keys_max
                         and not exists (select 1 from keys where account_id = $2 and keys.seat = seat.seat)
                     order by seat limit 1
                     returning id
                 )
                 insert into history (key_id, act, actor) select id, 'issued', $6 from issued",
            )
            .bind(key.id.as_str())
            .bind(account.id)
            .bind(name.as_str())
            .bind(scope.name())
            .bind(key.digest.as_bytes().as_slice())
            .bind(actor.name())
            .execute(&mut *transaction)
            .await?;
            if issued.rows_affected() == 0 {
                let keys_max = sqlx::query_scalar("select keys_max from account_limits where account_id = $1");
                let keys_max = keys_max.bind(account.id).fetch_one(&mut *transaction).await?;
                return Err(StoreRefusal::KeyLimitReached { keys_max }.into());
            }
            if *restrictions != Restrictions::default() {
                restrictions::set_restrictions(&mut transaction, actor, key.id, restrictions).await?;
            }
            record_key_event(&mut transaction, account.id, SecurityEvent::KeyCreated, key.id, name.as_str()).await?;
            Ok(transaction.commit().await?)
        };
        self.store.with_timeout::<_, StoreError>(issued).await
    }

    /// The limits that a key has instead of those of its account.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn overrides(self, id: KeyId) -> Result<LimitOverrides, StoreError> {
        let found = sqlx::query_as("select daily_limit, burst_limit, null::int as keys_max from keys where id = $1")
            .bind(id.as_str())
            .fetch_optional(&self.store.pool);
        let row: Option<OverridesRow> = self.store.with_timeout(found).await?;
        row.map(OverridesRow::into_overrides).ok_or(StoreRefusal::UnknownKey.into())
    }

    /// Replaces the limits that a key has instead of those of its account.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn set_limits(self, id: KeyId, limits: LimitOverrides) -> Result<KeyChange, StoreError> {
        let set = async {
            let mut transaction = self.store.pool.begin().await?;
            sqlx::query(key_update_sql!(
                "limits_changed",
                "daily_limit = $4, burst_limit = $5, generation = generation + 1",
                "(daily_limit, burst_limit) is distinct from ($4, $5)"
            ))
            .bind(id.as_str())
            .bind(None::<i64>)
            .bind(Actor::Operator.name())
            .bind(limits.daily_limit.map(accounts::to_i64))
            .bind(limits.burst_limit.map(accounts::to_i32))
            .execute(&mut *transaction)
            .await?;
            let change = load_updated_key(&mut transaction, Actor::Operator, id).await?;
            transaction.commit().await?;
            Ok(change)
        };
        self.store.with_timeout::<_, StoreError>(set).await
    }

    /// Renames a key. The key record does not change.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn rename(self, actor: Actor, id: KeyId, name: &KeyName) -> Result<(), StoreError> {
        let renamed = sqlx::query_scalar(
            "with renamed as (
                 update keys set name = $4
                 where id = $1 and ($2::bigint is null or account_id = $2) and name <> $4
                 returning id
             ), logged as (
                 insert into history (key_id, act, actor) select id, 'renamed', $3 from renamed
             )
             select exists (select 1 from keys where id = $1 and ($2::bigint is null or account_id = $2))",
        )
        .bind(id.as_str())
        .bind(actor.owner_account_id())
        .bind(actor.name())
        .bind(name.as_str())
        .fetch_one(&self.store.pool);
        if self.store.with_timeout(renamed).await? { Ok(()) } else { Err(StoreRefusal::UnknownKey.into()) }
    }

    /// Deactivates a key. No effect if it is already inactive.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn deactivate(self, actor: Actor, id: KeyId) -> Result<KeyChange, StoreError> {
        let statement = key_update_sql!(
            "deactivated",
            "deactivated_at = now(), generation = generation + 1",
            "deactivated_at is null"
        );
        self.apply_update(actor, id, statement).await
    }

    /// Reactivates a key. A key that was paused before stays paused.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn reactivate(self, actor: Actor, id: KeyId) -> Result<KeyChange, StoreError> {
        let statement = key_update_sql!(
            "reactivated",
            "deactivated_at = null, generation = generation + 1",
            "deactivated_at is not null"
        );
        self.apply_update(actor, id, statement).await
    }

    /// Resumes a paused key and starts a new burst epoch. With `is_paused_in_redis`, also a key whose pause was never
    /// recorded or was lost. An owner can resume a key once per burst window, because each resume admits 300 requests.
    ///
    /// # Errors
    /// If the key does not exist, or its owner resumes it again too early.
    pub async fn resume(self, actor: Actor, id: KeyId, is_paused_in_redis: bool) -> Result<KeyChange, StoreError> {
        let resumed = async {
            let mut transaction = self.store.pool.begin().await?;
            sqlx::query(key_update_sql!(
                "resumed",
                "paused_at = null, burst_window = burst_window + 1, generation = generation + 1",
                "(paused_at is not null or $4) and ($2::bigint is null or not exists (
                     select from history where key_id = $1 and act = 'resumed' and at > now() - make_interval(secs => $5)))"
            ))
            .bind(id.as_str())
            .bind(actor.owner_account_id())
            .bind(actor.name())
            .bind(is_paused_in_redis)
            .bind(RESUME_INTERVAL_S)
            .execute(&mut *transaction)
            .await?;
            let change = load_updated_key(&mut transaction, actor, id).await?;
            if matches!(&change, KeyChange::Updated(record) if record.flags.paused) {
                let retry_after_s = sqlx::query_scalar(
                    "select ceil($2 - extract(epoch from now() - max(at)))::bigint from history
                     where key_id = $1 and act = 'resumed'",
                )
                .bind(id.as_str())
                .bind(RESUME_INTERVAL_S)
                .fetch_one(&mut *transaction)
                .await?;
                return Err(StoreRefusal::ResumedRecently { retry_after_s }.into());
            }
            transaction.commit().await?;
            Ok(change)
        };
        self.store.with_timeout::<_, StoreError>(resumed).await
    }

    /// Replaces the secret of a key. The previous secret stays valid for `overlap_s` seconds, except that of an inactive key: it may
    /// have been deactivated because the secret was published.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn rotate(self, actor: Actor, new_key: &ApiKey, overlap_s: u32) -> Result<KeyChange, StoreError> {
        let rotated = async {
            let mut transaction = self.store.pool.begin().await?;
            sqlx::query(key_update_sql!(
                "rolled",
                "retired_digest = case when $5 > 0 and deactivated_at is null then digest end,
                 retired_until = case when $5 > 0 and deactivated_at is null then now() + make_interval(secs => $5) end,
                 digest = $4, generation = generation + 1",
                "true"
            ))
            .bind(new_key.id.as_str())
            .bind(actor.owner_account_id())
            .bind(actor.name())
            .bind(new_key.digest.as_bytes().as_slice())
            .bind(f64::from(overlap_s))
            .execute(&mut *transaction)
            .await?;
            let change = load_updated_key(&mut transaction, actor, new_key.id).await?;
            record_event_of(&mut transaction, SecurityEvent::KeyRotated, new_key.id).await?;
            transaction.commit().await?;
            Ok(change)
        };
        self.store.with_timeout::<_, StoreError>(rotated).await
    }

    /// Revokes the previous secret of a rotated key.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn revoke_previous(self, actor: Actor, id: KeyId) -> Result<KeyChange, StoreError> {
        let statement = key_update_sql!(
            "retired",
            "retired_digest = null, retired_until = null, generation = generation + 1",
            "retired_until > now()"
        );
        self.apply_update(actor, id, statement).await
    }

    /// Deletes a key and its history.
    ///
    /// # Errors
    /// If the key does not exist.
    pub async fn delete(self, actor: Actor, id: KeyId) -> Result<KeyChange, StoreError> {
        let deleted = async {
            let mut transaction = self.store.pool.begin().await?;
            let deleted: Option<(i64, String)> = sqlx::query_as(concat!(
                "with usage_lock as materialized (",
                usage_lock!(),
                ") delete from keys using usage_lock where id = $1 and ($2::bigint is null or account_id = $2)
                 returning account_id, name"
            ))
            .bind(id.as_str())
            .bind(actor.owner_account_id())
            .fetch_optional(&mut *transaction)
            .await?;
            let (account_id, name) = deleted.ok_or(StoreRefusal::UnknownKey)?;
            record_key_event(&mut transaction, account_id, SecurityEvent::KeyDeleted, id, &name).await?;
            transaction.commit().await?;
            Ok(KeyChange::Deleted(id))
        };
        self.store.with_timeout::<_, StoreError>(deleted).await
    }

    async fn apply_update(self, actor: Actor, id: KeyId, statement: &'static str) -> Result<KeyChange, StoreError> {
        let changed = async {
            let mut transaction = self.store.pool.begin().await?;
            let update = sqlx::query(statement).bind(id.as_str()).bind(actor.owner_account_id()).bind(actor.name());
            update.execute(&mut *transaction).await?;
            let change = load_updated_key(&mut transaction, actor, id).await?;
            transaction.commit().await?;
            Ok(change)
        };
        self.store.with_timeout::<_, StoreError>(changed).await
    }
}

/// Records an event of an existing key.
async fn record_event_of(connection: &mut PgConnection, event: SecurityEvent, id: KeyId) -> Result<(), sqlx::Error> {
    let (account_id, name): (i64, String) = sqlx::query_as("select account_id, name from keys where id = $1")
        .bind(id.as_str())
        .fetch_one(&mut *connection)
        .await?;
    record_key_event(connection, account_id, event, id, &name).await
}
