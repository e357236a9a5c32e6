//! The history of keys.

use ipseity_domain::KeyId;
use sqlx::FromRow;

use crate::access::AuditLog;
use crate::error::StoreError;

/// Who makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The owner of the account with this id. Keys of other accounts do not exist for it.
    Owner(i64),
    /// An operator, who can change any key.
    Operator,
}

impl Actor {
    /// The account that a key must belong to. `None` for any account.
    pub(crate) const fn owner_account_id(self) -> Option<i64> {
        match self {
            Self::Owner(id) => Some(id),
            Self::Operator => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Owner(_) => "owner",
            Self::Operator => "operator",
        }
    }
}

/// An event in the history of a key.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct HistoryRow {
    /// The event's id. Later events have greater ones.
    pub id: i64,
    /// When it happened, as Unix time in seconds.
    pub at_s: i64,
    /// `issued`, `renamed`, `deactivated`, `reactivated`, `paused`, `resumed`, `rolled`, `retired` or `restricted`.
    pub action: String,
    /// `owner`, `operator` or `service`.
    pub actor: String,
    /// The burst epoch that a pause ended, while its evidence is stored.
    pub burst_epoch: Option<i64>,
}

impl AuditLog<'_> {
    /// The newest events of one of an account's keys, newest first, or those before the event with the id `before`.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list_for_key(
        self,
        account_id: i64,
        id: KeyId,
        before: Option<i64>,
        count_max: i64,
    ) -> Result<Vec<HistoryRow>, StoreError> {
        let rows = sqlx::query_as(
            "select h.id, floor(extract(epoch from h.at))::bigint as at_s, h.act as action, h.actor, p.burst_window as burst_epoch
             from history h
             join keys k on k.id = h.key_id
             left join pauses p on h.act = 'paused' and p.key_id = h.key_id and p.paused_at = h.at
             where h.key_id = $2 and k.account_id = $1 and h.id < coalesce($4, h.id + 1) order by h.id desc limit $3",
        )
        .bind(account_id)
        .bind(id.as_str())
        .bind(count_max)
        .bind(before)
        .fetch_all(&self.store.pool);
        self.store.with_timeout(rows).await
    }
}
