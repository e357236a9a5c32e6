//! Accounts and plans.

use domain::Plan;
use domain::account::Email;
use sqlx::FromRow;

use crate::error::{Refused, StoreError, violates};
use crate::pool::Store;

/// An account.
#[derive(Clone, Debug, FromRow)]
pub struct Account {
    /// Its number.
    pub id: i64,
    /// Its owner's e-mail address.
    pub email: String,
    /// The name of its plan.
    pub plan: String,
    /// Unix time of its creation, in seconds.
    pub created_s: i64,
}

impl Store {
    /// Makes an account.
    ///
    /// # Errors
    /// When the address is taken or the plan unknown.
    pub async fn create_account(&self, email: &Email, plan: &str) -> Result<Account, StoreError> {
        let made = sqlx::query_as(
            "insert into accounts (email, plan) values ($1, $2)
             returning id, email, plan, extract(epoch from created_at)::bigint as created_s",
        )
        .bind(email.as_str())
        .bind(plan)
        .fetch_one(&self.pool)
        .await;
        made.map_err(|error| {
            if violates(&error, "accounts_email") {
                Refused::AccountExists.into()
            } else if violates(&error, "accounts_plan_fkey") {
                Refused::UnknownPlan.into()
            } else {
                error.into()
            }
        })
    }

    /// Finds an account by its owner's address.
    ///
    /// # Errors
    /// When there is none.
    pub async fn account(&self, email: &Email) -> Result<Account, StoreError> {
        sqlx::query_as(
            "select id, email, plan, extract(epoch from created_at)::bigint as created_s
             from accounts where lower(email) = lower($1)",
        )
        .bind(email.as_str())
        .fetch_optional(&self.pool)
        .await?
        .ok_or(Refused::UnknownAccount.into())
    }

    /// All accounts after the one with this number, in order, a page at a time.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn accounts_after(&self, id: i64, count_max: i64) -> Result<Vec<Account>, StoreError> {
        Ok(sqlx::query_as(
            "select id, email, plan, extract(epoch from created_at)::bigint as created_s
             from accounts where id > $1 order by id limit $2",
        )
        .bind(id)
        .bind(count_max)
        .fetch_all(&self.pool)
        .await?)
    }

    /// Gives an account another plan; its keys' standings change with it.
    ///
    /// # Errors
    /// When the plan is unknown.
    pub async fn set_plan(&self, account: &Account, plan: &str) -> Result<Vec<domain::KeyId>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let set = sqlx::query("update accounts set plan = $2 where id = $1").bind(account.id).bind(plan);
        set.execute(&mut *transaction).await.map_err(|error| {
            if violates(&error, "accounts_plan_fkey") { Refused::UnknownPlan.into() } else { StoreError::from(error) }
        })?;
        let ids: Vec<String> =
            sqlx::query_scalar("update keys set generation = generation + 1 where account_id = $1 returning id")
                .bind(account.id)
                .fetch_all(&mut *transaction)
                .await?;
        transaction.commit().await?;
        Ok(ids.iter().filter_map(|id| domain::KeyId::parse(id)).collect())
    }

    /// Adds a plan. Plans do not change: a key's limit follows its account's plan, and a million keys may share one.
    ///
    /// # Errors
    /// When the name is taken.
    pub async fn add_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        let added = sqlx::query("insert into plans (name, daily_limit) values ($1, $2)")
            .bind(&plan.name)
            .bind(i64::try_from(plan.daily_limit).unwrap_or(i64::MAX))
            .execute(&self.pool)
            .await;
        match added {
            Ok(_) => Ok(()),
            Err(error) if violates(&error, "plans_pkey") => Err(Refused::PlanExists.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// All plans, by name.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("select name, daily_limit from plans order by name").fetch_all(&self.pool).await?;
        Ok(rows.into_iter().map(|(name, limit)| Plan { name, daily_limit: limit.unsigned_abs() }).collect())
    }
}
