//! Sessions of operators, identified by the digest of a cookie. No client address is stored.

use std::time::Duration;

use sqlx::FromRow;

use crate::access::Operators;
use crate::error::{StoreError, StoreRefusal};
use crate::operators::{Operator, OperatorRow};

/// Maximum number of sessions per operator. The least recently used ones are removed.
const SESSIONS_MAX: i64 = 20;

/// A signed-in operator.
#[derive(Clone, Debug)]
pub struct AuthenticatedOperator {
    /// The operator.
    pub operator: Operator,
    /// The id of the session.
    pub session_id: i64,
}

/// How long sessions of operators last.
#[derive(Clone, Copy, Debug)]
pub struct OperatorSessionLimits {
    /// Without use.
    pub idle_timeout: Duration,
    /// In total.
    pub lifetime_max: Duration,
}

#[derive(FromRow)]
struct AuthenticatedRow {
    #[sqlx(flatten)]
    operator: OperatorRow,
    session_id: i64,
    is_stale: bool,
}

/// Ends the sessions of a condition. A trigger adds the event to the audit log if there are any.
macro_rules! audited_sql {
    ($event:literal, $condition:literal) => {
        concat!(
            "with event as materialized (select set_config('ipseity.ended_sessions', '",
            $event,
            "', true)) delete from operator_sessions using event where ",
            $condition
        )
    };
}

impl Operators<'_> {
    /// Opens a session.
    ///
    /// # Errors
    /// If the operator does not exist.
    pub async fn open_session(self, operator_id: i64, digest: &[u8; 32], label: &str) -> Result<(), StoreError> {
        let opened = sqlx::query(
            "with surplus as (
                 delete from operator_sessions where id in (
                     select id from operator_sessions where operator_id = $1 order by seen_at desc, id desc offset $4 - 1
                     for update skip locked
                 )
             )
             insert into operator_sessions (operator_id, digest, label) select id, $2, left($3, 60) from operators where id = $1",
        )
        .bind(operator_id)
        .bind(digest.as_slice())
        .bind(label)
        .bind(SESSIONS_MAX)
        .execute(&self.store.pool);
        let is_open = self.store.with_timeout(opened).await?.rows_affected() == 1;
        if is_open { Ok(()) } else { Err(StoreRefusal::UnknownOperator.into()) }
    }

    /// Finds the signed-in operator, unless the session has reached a limit.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn authenticate(
        self,
        digest: &[u8; 32],
        limits: OperatorSessionLimits,
    ) -> Result<Option<AuthenticatedOperator>, StoreError> {
        let found = sqlx::query_as(
            "select o.id, o.name, o.role, o.handle, s.id as session_id,
                    s.seen_at < now() - least(interval '1 minute', make_interval(secs => $2) / 2) as is_stale
             from operator_sessions s join operators o on o.id = s.operator_id
             where s.digest = $1 and s.seen_at > now() - make_interval(secs => $2)
                 and s.created_at > now() - make_interval(secs => $3)",
        )
        .bind(digest.as_slice())
        .bind(limits.idle_timeout.as_secs_f64())
        .bind(limits.lifetime_max.as_secs_f64())
        .fetch_optional(&self.store.pool);
        let Some(AuthenticatedRow { operator, session_id, is_stale }) = self.store.with_timeout(found).await? else {
            return Ok(None);
        };
        if is_stale {
            let touch = sqlx::query("update operator_sessions set seen_at = now() where id = $1").bind(session_id);
            self.store.with_timeout(touch.execute(&self.store.pool)).await?;
        }
        Ok(Some(AuthenticatedOperator { operator: operator.into_operator(), session_id }))
    }

    /// Ends the session with this digest, if it exists.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn end_session(self, digest: &[u8; 32]) -> Result<(), StoreError> {
        let ended = sqlx::query(audited_sql!("operator_signed_out", "digest = $1")).bind(digest.as_slice());
        self.store.with_timeout(ended.execute(&self.store.pool)).await?;
        Ok(())
    }

    /// Ends all sessions of an operator except one, and returns their number.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn end_other_sessions(self, operator_id: i64, keep_session_id: i64) -> Result<u64, StoreError> {
        let ended = sqlx::query(audited_sql!("operator_sessions_ended", "operator_id = $1 and id <> $2"))
            .bind(operator_id)
            .bind(keep_session_id)
            .execute(&self.store.pool);
        Ok(self.store.with_timeout(ended).await?.rows_affected())
    }
}
