//! The audit log. Triggers write it, so that no change is left out.

use ipseity_domain::KeyId;
use sqlx::FromRow;

use crate::access::AuditLog;
use crate::error::StoreError;

/// An event in the audit log.
#[derive(Clone, Debug, FromRow)]
pub struct AuditEvent {
    /// Numbers increase. Events that happen at the same time can become visible in another order.
    pub id: i64,
    /// When it happened, as Unix time in seconds.
    pub at_s: i64,
    /// `owner`, `operator` or `service`.
    pub actor: String,
    /// The name of the operator, if it is known.
    pub operator: Option<String>,
    /// What happened, such as `issued` or `plan_changed`.
    pub action: String,
    /// The number of the account.
    pub account_id: Option<i64>,
    /// The email address of the account, while it exists.
    pub email: Option<String>,
    /// The key's id.
    pub key_id: Option<String>,
    /// The name of the plan, site or personal token.
    pub subject: Option<String>,
    /// The name of the personal token with which a program of the owner made the change.
    pub token: Option<String>,
}

/// Which events to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFilter<'a> {
    /// Only events of this account.
    pub account_id: Option<i64>,
    /// Only events of this key.
    pub key: Option<KeyId>,
    /// Only events of this operator.
    pub operator: Option<&'a str>,
    /// Only this action, such as `issued`.
    pub action: Option<&'a str>,
    /// Only events since this time, as Unix time in seconds.
    pub since_s: Option<i64>,
    /// Only events with a larger number.
    pub after_id: Option<i64>,
    /// Only events with a smaller number.
    pub before_id: Option<i64>,
}

/// The newest event at some time. Transactions that were open then may still add events with smaller numbers.
#[derive(Clone, Debug)]
pub struct AuditHorizon {
    /// The number of the newest event.
    pub id: i64,
    /// The open transactions, as in `pg_locks`.
    writers: Vec<String>,
}

macro_rules! audit_sql {
    ($order:literal) => {
        concat!(
            "select e.id, floor(extract(epoch from e.at))::bigint as at_s, e.actor, e.operator, e.action, e.account_id,
                    a.email, e.key_id, e.subject, e.token
             from audit_events e left join accounts a on a.id = e.account_id
             where ($1::bigint is null or e.account_id = $1) and ($2::text is null or e.key_id = $2)
                 and ($3::bigint is null or e.at >= to_timestamp($3)) and ($4::bigint is null or e.id > $4)
                 and ($6::bigint is null or e.id < $6)
                 and ($7::text is null or e.operator = $7) and ($8::text is null or e.action = $8)
             order by e.id ",
            $order,
            " limit $5"
        )
    };
}

impl AuditLog<'_> {
    /// The newest events, newest first. They include deleted accounts and keys.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, filter: &AuditFilter<'_>, count_max: i64) -> Result<Vec<AuditEvent>, StoreError> {
        self.query(audit_sql!("desc"), filter, count_max).await
    }

    /// The oldest events, oldest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list_oldest(self, filter: &AuditFilter<'_>, count_max: i64) -> Result<Vec<AuditEvent>, StoreError> {
        self.query(audit_sql!("asc"), filter, count_max).await
    }

    /// The newest event, and the transactions that may still add older ones.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn horizon(self) -> Result<AuditHorizon, StoreError> {
        // An event gets its number after its transaction has locked the table. So the transaction of an older event that is
        // not visible here either holds the lock afterwards or is complete.
        let newest = sqlx::query_scalar("select coalesce(max(id), 0) from audit_events").fetch_one(&self.store.pool);
        let id = self.store.with_timeout(newest).await?;
        Ok(AuditHorizon { id, writers: self.open_writers().await? })
    }

    /// Whether all events up to the horizon are visible.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn is_settled(self, horizon: &AuditHorizon) -> Result<bool, StoreError> {
        if horizon.writers.is_empty() {
            return Ok(true);
        }
        let open = self.open_writers().await?;
        Ok(!open.iter().any(|writer| horizon.writers.contains(writer)))
    }

    /// The transactions that have added events and are not complete.
    async fn open_writers(self) -> Result<Vec<String>, StoreError> {
        let writers = sqlx::query_scalar(
            "select virtualtransaction from pg_locks
             where database = (select oid from pg_database where datname = current_database())
                 and relation = 'audit_events'::regclass and mode = 'RowExclusiveLock'",
        );
        self.store.with_timeout(writers.fetch_all(&self.store.pool)).await
    }

    async fn query(
        self,
        sql: &'static str,
        filter: &AuditFilter<'_>,
        count_max: i64,
    ) -> Result<Vec<AuditEvent>, StoreError> {
        let events = sqlx::query_as(sql)
            .bind(filter.account_id)
            .bind(filter.key.as_ref().map(KeyId::as_str))
            .bind(filter.since_s)
            .bind(filter.after_id)
            .bind(count_max)
            .bind(filter.before_id)
            .bind(filter.operator)
            .bind(filter.action)
            // Planned for these values: a plan for any filter would read all events.
            .persistent(false)
            .fetch_all(&self.store.pool);
        self.store.with_timeout(events).await
    }
}
