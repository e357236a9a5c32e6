//! Accounts and plans.

use domain::KeyId;
use domain::account::Email;
use domain::plan::{FREE, Plan};
use sqlx::{FromRow, PgConnection, PgExecutor};

use crate::error::{Refused, StoreError, violates};
use crate::pool::Store;
use crate::usage::turn;

/// An account.
#[derive(Clone, Debug, FromRow)]
pub struct Account {
    /// Its number.
    pub id: i64,
    /// Its owner's e-mail address.
    pub email: String,
    /// The name of its plan.
    pub plan: String,
    /// Requests a day and key, by its plan.
    #[sqlx(try_from = "i64")]
    pub daily_limit: u64,
    /// Unix time of its creation, in seconds.
    pub created_s: i64,
}

/// Accounts as [`Account`] reads them, narrowed by what follows.
macro_rules! select_accounts {
    ($narrowed:literal) => {
        concat!(
            "select a.id, a.email, a.plan, p.daily_limit, floor(extract(epoch from a.created_at))::bigint as created_s
             from accounts a join plans p on p.name = a.plan ",
            $narrowed
        )
    };
}

impl Store {
    /// Makes an account.
    ///
    /// # Errors
    /// When the address is taken or the plan unknown.
    pub async fn create_account(&self, email: &Email, plan: &str) -> Result<Account, StoreError> {
        self.within(create(&self.pool, email.as_str(), plan, None)).await
    }

    /// Makes an account that its owner can sign in to.
    ///
    /// # Errors
    /// When the address is taken.
    pub async fn create_member(&self, email: &Email, password_hash: &str) -> Result<Account, StoreError> {
        self.within(create(&self.pool, email.as_str(), FREE, Some(password_hash))).await
    }

    /// Finds an account by its owner's address.
    ///
    /// # Errors
    /// When there is none.
    pub async fn account(&self, email: &Email) -> Result<Account, StoreError> {
        let found = sqlx::query_as(select_accounts!("where lower(a.email) = lower($1)"))
            .bind(email.as_str())
            .fetch_optional(&self.pool);
        self.within(found).await?.ok_or(Refused::UnknownAccount.into())
    }

    /// Finds an account by its number.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn find_account(&self, id: i64) -> Result<Option<Account>, StoreError> {
        self.within(sqlx::query_as(select_accounts!("where a.id = $1")).bind(id).fetch_optional(&self.pool)).await
    }

    /// All accounts after the one with this number, in order, a page at a time.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn accounts_after(&self, id: i64, count_max: i64) -> Result<Vec<Account>, StoreError> {
        let page = sqlx::query_as(select_accounts!("where a.id > $1 order by a.id limit $2"))
            .bind(id)
            .bind(count_max)
            .fetch_all(&self.pool);
        self.within(page).await
    }

    /// Deletes an account with all that is its own, and says which keys went with it.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn delete_account(&self, account_id: i64) -> Result<Vec<KeyId>, StoreError> {
        let deleted = async {
            let mut transaction = self.pool.begin().await?;
            lock(&mut transaction, account_id).await?;
            sqlx::query(turn!()).execute(&mut *transaction).await?;
            let ids: Vec<String> = sqlx::query_scalar("select id from keys where account_id = $1 order by id")
                .bind(account_id)
                .fetch_all(&mut *transaction)
                .await?;
            sqlx::query(
                "with gone as (delete from accounts where id = $1 returning email)
                 delete from tickets using gone where lower(tickets.email) = lower(gone.email)",
            )
            .bind(account_id)
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            Ok(ids.iter().filter_map(|id| KeyId::parse(id)).collect())
        };
        self.within::<_, sqlx::Error>(deleted).await
    }

    /// Gives an account another plan; its keys' standings change with it.
    ///
    /// # Errors
    /// When the plan is unknown.
    pub async fn set_plan(&self, account: &Account, plan: &str) -> Result<Vec<KeyId>, StoreError> {
        let set = async {
            let mut transaction = self.pool.begin().await?;
            let set = sqlx::query("update accounts set plan = $2 where id = $1").bind(account.id).bind(plan);
            set.execute(&mut *transaction).await.map_err(known_plan)?;
            let ids: Vec<String> =
                sqlx::query_scalar("update keys set generation = generation + 1 where account_id = $1 returning id")
                    .bind(account.id)
                    .fetch_all(&mut *transaction)
                    .await?;
            transaction.commit().await?;
            Ok(ids.iter().filter_map(|id| KeyId::parse(id)).collect())
        };
        self.within::<_, StoreError>(set).await
    }

    /// Adds a plan. Plans do not change: a key's limit follows its account's plan, and a million keys may share one.
    ///
    /// # Errors
    /// When the name is taken.
    pub async fn add_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        let added = sqlx::query("insert into plans (name, daily_limit) values ($1, $2) on conflict do nothing")
            .bind(&plan.name)
            .bind(i64::try_from(plan.daily_limit).unwrap_or(i64::MAX))
            .execute(&self.pool);
        let added = self.within(added).await?.rows_affected();
        if added == 1 { Ok(()) } else { Err(Refused::PlanExists.into()) }
    }

    /// All plans, by name.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let plans = sqlx::query_as("select name, daily_limit from plans order by name").fetch_all(&self.pool);
        let rows: Vec<(String, i64)> = self.within(plans).await?;
        Ok(rows.into_iter().map(|(name, limit)| Plan { name, daily_limit: limit.unsigned_abs() }).collect())
    }
}

/// Makes an account. A taken address is no error of the statement: PostgreSQL would write it into its log.
pub(crate) async fn create(
    executor: impl PgExecutor<'_>,
    email: &str,
    plan: &str,
    password_hash: Option<&str>,
) -> Result<Account, StoreError> {
    let made = sqlx::query_as(
        "with made as (
             insert into accounts (email, plan, password_hash) values ($1, $2, $3)
             on conflict (lower(email)) do nothing
             returning id, email, plan, created_at
         )
         select made.id, made.email, made.plan, plans.daily_limit,
                floor(extract(epoch from made.created_at))::bigint as created_s
         from made join plans on plans.name = made.plan",
    )
    .bind(email)
    .bind(plan)
    .bind(password_hash);
    made.fetch_optional(executor).await.map_err(known_plan)?.ok_or(Refused::AccountExists.into())
}

/// Makes whoever changes what an account holds queue; `false` when there is no such account.
pub(crate) async fn lock(connection: &mut PgConnection, account_id: i64) -> Result<bool, sqlx::Error> {
    let locked = sqlx::query("select 1 from accounts where id = $1 for update").bind(account_id);
    Ok(locked.execute(connection).await?.rows_affected() == 1)
}

fn known_plan(error: sqlx::Error) -> StoreError {
    if violates(&error, "accounts_plan_fkey") { Refused::UnknownPlan.into() } else { error.into() }
}
