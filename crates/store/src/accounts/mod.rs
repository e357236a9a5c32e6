//! Accounts and plans.

pub(crate) mod credentials;
pub(crate) mod passkeys;
pub(crate) mod security_log;
pub(crate) mod sessions;
pub(crate) mod two_factor;

use ipseity_domain::KeyId;
use ipseity_domain::account::EmailAddress;
use ipseity_domain::plan::{FREE_PLAN, Plan};
use sqlx::{FromRow, PgConnection, PgExecutor};

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
    /// Requests per key per day, by the plan.
    #[sqlx(try_from = "i64")]
    pub daily_limit: u64,
    /// When it was created, as Unix time in seconds.
    pub created_s: i64,
}

/// Selects the columns of [`Account`], with the given condition.
macro_rules! select_accounts {
    ($narrowed:literal) => {
        concat!(
            "select a.id, a.email, a.plan, p.daily_limit, floor(extract(epoch from a.created_at))::bigint as created_s
             from accounts a join plans p on p.name = a.plan ",
            $narrowed
        )
    };
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
        let set = async {
            let mut transaction = self.store.pool.begin().await?;
            let set = sqlx::query("update accounts set plan = $2 where id = $1").bind(account.id).bind(plan);
            set.execute(&mut *transaction).await.map_err(map_unknown_plan)?;
            let ids: Vec<String> =
                sqlx::query_scalar("update keys set generation = generation + 1 where account_id = $1 returning id")
                    .bind(account.id)
                    .fetch_all(&mut *transaction)
                    .await?;
            transaction.commit().await?;
            Ok(ids.iter().filter_map(|id| KeyId::parse(id)).collect())
        };
        self.store.with_timeout::<_, StoreError>(set).await
    }
}

impl Plans<'_> {
    /// Adds a plan. Plans cannot be changed, because a change would affect all keys of a plan, possibly millions.
    ///
    /// # Errors
    /// If the name is taken.
    pub async fn create(self, plan: &Plan) -> Result<(), StoreError> {
        let added = sqlx::query("insert into plans (name, daily_limit) values ($1, $2) on conflict do nothing")
            .bind(&plan.name)
            .bind(i64::try_from(plan.daily_limit).unwrap_or(i64::MAX))
            .execute(&self.store.pool);
        let added = self.store.with_timeout(added).await?.rows_affected();
        if added == 1 { Ok(()) } else { Err(StoreRefusal::PlanExists.into()) }
    }

    /// All plans, ordered by name.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self) -> Result<Vec<Plan>, StoreError> {
        let plans = sqlx::query_as("select name, daily_limit from plans order by name").fetch_all(&self.store.pool);
        let rows: Vec<(String, i64)> = self.store.with_timeout(plans).await?;
        Ok(rows.into_iter().map(|(name, limit)| Plan { name, daily_limit: limit.unsigned_abs() }).collect())
    }
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
         select created.id, created.email, created.plan, plans.daily_limit,
                floor(extract(epoch from created.created_at))::bigint as created_s
         from created join plans on plans.name = created.plan",
    )
    .bind(email.as_str())
    .bind(plan)
    .bind(password_hash);
    inserted.fetch_optional(executor).await.map_err(map_unknown_plan)?.ok_or(StoreRefusal::AccountExists.into())
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
