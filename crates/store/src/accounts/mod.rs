//! Accounts and plans.

pub(crate) mod credentials;
pub(crate) mod identities;
pub(crate) mod passkeys;
pub(crate) mod personal_tokens;
pub(crate) mod security_log;
pub(crate) mod sessions;
pub(crate) mod two_factor;

use ipseity_domain::KeyId;
use ipseity_domain::account::EmailAddress;
use ipseity_domain::plan::{FREE_PLAN, LimitOverrides, Limits, Plan};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{FromRow, PgConnection, PgExecutor, Postgres};

use crate::access::{Accounts, Plans};
use crate::accounts::security_log::{SecurityEvent, record_event};
use crate::email::notices::replace_email_notices;
use crate::error::{StoreError, StoreRefusal, violates_constraint};
use crate::usage::usage_lock;

/// An account.
#[derive(Clone, Debug, FromRow)]
pub struct Account {
    /// The account's id.
    pub id: i64,
    /// The owner's email address, as [`EmailAddress`] writes it.
    pub email: String,
    /// The name of the plan.
    pub plan: String,
    /// Requests per key per day, by the plan or an override.
    #[sqlx(try_from = "i64")]
    pub daily_limit: u64,
    /// Requests per key in any 60 seconds, by the plan or an override.
    #[sqlx(try_from = "i32")]
    pub burst_limit: usize,
    /// Maximum number of keys, by the plan or an override.
    #[sqlx(try_from = "i32")]
    pub keys_max: usize,
    /// When it was created, as Unix time in seconds.
    pub created_s: i64,
}

/// The columns of [`Account`], from `accounts a` and `account_limits l`.
macro_rules! account_columns {
    () => {
        "a.id, a.email, a.plan, l.daily_limit, l.burst_limit, l.keys_max,
         floor(extract(epoch from a.created_at))::bigint as created_s"
    };
}
pub(crate) use account_columns;

/// Selects the columns of [`Account`], with the given condition.
macro_rules! select_accounts {
    ($narrowed:literal) => {
        concat!(
            "select ",
            account_columns!(),
            " from accounts a join account_limits l on l.account_id = a.id ",
            $narrowed
        )
    };
}
pub(crate) use select_accounts;

impl Account {
    /// Its limits.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        Limits { daily_limit: self.daily_limit, burst_limit: self.burst_limit, keys_max: self.keys_max }
    }
}

/// Dedicated limits, as columns of an account or a key.
#[derive(FromRow)]
pub(crate) struct OverridesRow {
    daily_limit: Option<i64>,
    burst_limit: Option<i32>,
    keys_max: Option<i32>,
}

impl OverridesRow {
    pub(crate) fn into_overrides(self) -> LimitOverrides {
        let to_usize = |number: i32| usize::try_from(number).unwrap_or(0);
        LimitOverrides {
            daily_limit: self.daily_limit.map(i64::unsigned_abs),
            burst_limit: self.burst_limit.map(to_usize),
            keys_max: self.keys_max.map(to_usize),
        }
    }
}

impl Accounts<'_> {
    /// Creates an account.
    ///
    /// # Errors
    /// If the address is taken or the plan does not exist.
    pub async fn create(self, email: &EmailAddress, plan: &str) -> Result<Account, StoreError> {
        self.store.with_timeout(insert_account(&self.store.pool, email, plan, None)).await
    }

    /// Creates an account with a password, on the free plan.
    ///
    /// # Errors
    /// If the address is taken.
    pub async fn create_with_password(self, email: &EmailAddress, password_hash: &str) -> Result<Account, StoreError> {
        self.store.with_timeout(insert_account(&self.store.pool, email, FREE_PLAN, Some(password_hash))).await
    }

    /// Finds an account by email address.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn get_by_email(self, email: &EmailAddress) -> Result<Account, StoreError> {
        let found = sqlx::query_as(select_accounts!("where a.email collate \"C\" = $1"))
            .bind(email.as_str())
            .fetch_optional(&self.store.pool);
        self.store.with_timeout(found).await?.ok_or(StoreRefusal::UnknownAccount.into())
    }

    /// Finds an account by id.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find(self, id: i64) -> Result<Option<Account>, StoreError> {
        self.store
            .with_timeout(sqlx::query_as(select_accounts!("where a.id = $1")).bind(id).fetch_optional(&self.store.pool))
            .await
    }

    /// A page of accounts with ids greater than this one, ordered by id.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list_after(self, id: i64, count_max: i64) -> Result<Vec<Account>, StoreError> {
        let page = sqlx::query_as(select_accounts!("where a.id > $1 order by a.id limit $2"))
            .bind(id)
            .bind(count_max)
            .fetch_all(&self.store.pool);
        self.store.with_timeout(page).await
    }

    /// Deletes an account with all its data, and returns its keys. The session of its owner is `None` for an operator.
    ///
    /// # Errors
    /// If the session has ended.
    pub async fn delete(self, account_id: i64, session_id: Option<i64>) -> Result<Vec<KeyId>, StoreError> {
        let deleted = async {
            let mut transaction = self.store.pool.begin().await?;
            if !lock_account(&mut transaction, account_id).await? {
                return Ok(Vec::new());
            }
            if let Some(session_id) = session_id {
                require_session(&mut transaction, account_id, session_id).await?;
            }
            sqlx::query(usage_lock!()).execute(&mut *transaction).await?;
            let ids: Vec<String> = sqlx::query_scalar("select id from keys where account_id = $1 order by id")
                .bind(account_id)
                .fetch_all(&mut *transaction)
                .await?;
            record_event(&mut transaction, account_id, SecurityEvent::AccountDeleted, None).await?;
            replace_email_notices(&mut transaction, account_id, SecurityEvent::AccountDeleted).await?;
            sqlx::query(
                "with deleted as (delete from accounts where id = $1 returning email)
                 delete from tickets using deleted where tickets.email collate \"C\" = deleted.email",
            )
            .bind(account_id)
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok(ids.iter().filter_map(|id| KeyId::parse(id)).collect())
        };
        self.store.with_timeout::<_, StoreError>(deleted).await
    }

    /// Changes an account's plan, and returns its keys, whose records change.
    ///
    /// # Errors
    /// If the plan does not exist.
    pub async fn set_plan(self, account: &Account, plan: &str) -> Result<Vec<KeyId>, StoreError> {
        let set = sqlx::query("update accounts set plan = $2 where id = $1").bind(account.id).bind(plan);
        self.change_limits(account, set).await
    }

    /// Replaces the limits that an account has instead of those of its plan, and returns its keys, whose records change.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn set_limits(self, account: &Account, limits: LimitOverrides) -> Result<Vec<KeyId>, StoreError> {
        let set = sqlx::query("update accounts set daily_limit = $2, burst_limit = $3, keys_max = $4 where id = $1")
            .bind(account.id)
            .bind(limits.daily_limit.map(to_i64))
            .bind(limits.burst_limit.map(to_i32))
            .bind(limits.keys_max.map(to_i32));
        self.change_limits(account, set).await
    }

    /// The limits that an account has instead of those of its plan.
    ///
    /// # Errors
    /// If the account does not exist.
    pub async fn overrides(self, account_id: i64) -> Result<LimitOverrides, StoreError> {
        let found = sqlx::query_as("select daily_limit, burst_limit, keys_max from accounts where id = $1")
            .bind(account_id)
            .fetch_optional(&self.store.pool);
        let row: Option<OverridesRow> = self.store.with_timeout(found).await?;
        row.map(OverridesRow::into_overrides).ok_or(StoreRefusal::UnknownAccount.into())
    }

    async fn change_limits(
        self,
        account: &Account,
        change: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<KeyId>, StoreError> {
        let changed = async {
            let mut transaction = self.store.pool.begin().await?;
            change.execute(&mut *transaction).await.map_err(map_unknown_plan)?;
            let keys = update_keys(&mut transaction, account.id).await?;
            transaction.commit().await?;
            Ok(keys)
        };
        self.store.with_timeout::<_, StoreError>(changed).await
    }
}

impl Plans<'_> {
    /// Adds a plan. Plans cannot be changed, because a change would affect all keys of a plan, possibly millions.
    ///
    /// # Errors
    /// If the name is taken.
    pub async fn create(self, plan: &Plan) -> Result<(), StoreError> {
        let added = sqlx::query(
            "insert into plans (name, daily_limit, burst_limit, keys_max) values ($1, $2, $3, $4) on conflict do nothing",
        )
        .bind(&plan.name)
        .bind(to_i64(plan.limits.daily_limit))
        .bind(to_i32(plan.limits.burst_limit))
        .bind(to_i32(plan.limits.keys_max))
        .execute(&self.store.pool);
        let added = self.store.with_timeout(added).await?.rows_affected();
        if added == 1 { Ok(()) } else { Err(StoreRefusal::PlanExists.into()) }
    }

    /// All plans, ordered by name.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self) -> Result<Vec<Plan>, StoreError> {
        let plans = sqlx::query_as("select name, daily_limit, burst_limit, keys_max from plans order by name");
        let rows: Vec<(String, i64, i32, i32)> = self.store.with_timeout(plans.fetch_all(&self.store.pool)).await?;
        let to_plan = |(name, daily_limit, burst_limit, keys_max): (String, i64, i32, i32)| {
            let (burst_limit, keys_max) = (usize::try_from(burst_limit).ok()?, usize::try_from(keys_max).ok()?);
            Some(Plan { name, limits: Limits { daily_limit: daily_limit.unsigned_abs(), burst_limit, keys_max } })
        };
        Ok(rows.into_iter().filter_map(to_plan).collect())
    }

    /// The number of accounts and keys with dedicated limits that the specification does not allow.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn count_unspecified_overrides(self) -> Result<u64, StoreError> {
        let Limits { burst_limit, keys_max, daily_limit } = Limits::SPECIFIED;
        let counted = sqlx::query_scalar(
            "select (select count(*) from accounts
                     where burst_limit <> $1 or keys_max <> $2 or (plan = $4 and daily_limit <> $3))
                  + (select count(*) from keys k join accounts a on a.id = k.account_id
                     where k.burst_limit <> $1 or (a.plan = $4 and k.daily_limit <> $3))",
        )
        .bind(to_i32(burst_limit))
        .bind(to_i32(keys_max))
        .bind(to_i64(daily_limit))
        .bind(FREE_PLAN)
        .fetch_one(&self.store.pool);
        self.store.with_timeout(counted).await.map(i64::unsigned_abs)
    }
}

pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn to_i32(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Creates an account. A duplicate address does not fail the statement, because PostgreSQL would log the address.
pub(crate) async fn insert_account(
    executor: impl PgExecutor<'_>,
    email: &EmailAddress,
    plan: &str,
    password_hash: Option<&str>,
) -> Result<Account, StoreError> {
    let inserted = sqlx::query_as(
        "with created as (
             insert into accounts (email, plan, password_hash) values ($1, $2, $3)
             on conflict do nothing
             returning id, email, plan, created_at
         )
         select created.id, created.email, created.plan, plans.daily_limit, plans.burst_limit, plans.keys_max,
                floor(extract(epoch from created.created_at))::bigint as created_s
         from created join plans on plans.name = created.plan",
    )
    .bind(email.as_str())
    .bind(plan)
    .bind(password_hash);
    inserted.fetch_optional(executor).await.map_err(map_unknown_plan)?.ok_or(StoreRefusal::AccountExists.into())
}

/// Updates the key records of an account whose limits changed, and returns its keys.
pub(crate) async fn update_keys(connection: &mut PgConnection, account_id: i64) -> Result<Vec<KeyId>, sqlx::Error> {
    let ids: Vec<String> =
        sqlx::query_scalar("update keys set generation = generation + 1 where account_id = $1 returning id")
            .bind(account_id)
            .fetch_all(connection)
            .await?;
    Ok(ids.iter().filter_map(|id| KeyId::parse(id)).collect())
}

/// Locks an account against concurrent changes. Returns false if it does not exist.
pub(crate) async fn lock_account(connection: &mut PgConnection, account_id: i64) -> Result<bool, sqlx::Error> {
    let locked = sqlx::query("select 1 from accounts where id = $1 for update").bind(account_id);
    Ok(locked.execute(connection).await?.rows_affected() == 1)
}

/// Rejects a change by a session that ended while the request was on the way. Call it after [`lock_account`], which waits for a
/// password reset that ends the session.
pub(crate) async fn require_session(
    connection: &mut PgConnection,
    account_id: i64,
    session_id: i64,
) -> Result<(), StoreError> {
    let found =
        sqlx::query("select 1 from sessions where id = $1 and account_id = $2").bind(session_id).bind(account_id);
    if found.execute(connection).await?.rows_affected() == 1 { Ok(()) } else { Err(StoreRefusal::SessionEnded.into()) }
}

fn map_unknown_plan(error: sqlx::Error) -> StoreError {
    if violates_constraint(&error, "accounts_plan_fkey") { StoreRefusal::UnknownPlan.into() } else { error.into() }
}
