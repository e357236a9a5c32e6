//! Members' requests for higher limits, and the decisions of operators. Triggers write both to the audit log.

use ipseity_domain::KeyId;
use sqlx::FromRow;

use crate::access::LimitRequests;
use crate::accounts::{self, to_i64};
use crate::error::{StoreError, StoreRefusal};

/// Maximum length of a message and of an answer, in characters.
pub const LIMIT_REQUEST_CHARS_MAX: usize = 1_000;

/// A request as a member makes it.
#[derive(Clone, Copy, Debug)]
pub struct NewLimitRequest<'a> {
    /// The account.
    pub account_id: i64,
    /// The number of requests per key per day that it needs.
    pub daily_limit: u64,
    /// What it is for.
    pub message: &'a str,
}

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRequestState {
    /// No operator has decided yet. An account has at most one such request.
    Open,
    /// An operator has agreed.
    Granted,
    /// An operator has refused.
    Declined,
}

impl LimitRequestState {
    const ALL: [Self; 3] = [Self::Open, Self::Granted, Self::Declined];

    /// The state with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// The state's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Granted => "granted",
            Self::Declined => "declined",
        }
    }
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitDecision {
    /// Grants it. The limits of the account are changed separately.
    Grant,
    /// Declines it.
    Decline,
}

/// A request for a higher limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRequest {
    /// Numbers increase.
    pub id: i64,
    /// The number of the account.
    pub account_id: i64,
    /// The email address of the account.
    pub email: String,
    /// The number of requests per key per day that it needs.
    pub daily_limit: u64,
    /// What it is for.
    pub message: String,
    /// When it was made, as Unix time in seconds.
    pub created_s: i64,
    /// Its state.
    pub state: LimitRequestState,
    /// The operator's answer. Empty if there is none.
    pub answer: String,
    /// When it was decided, as Unix time in seconds.
    pub decided_s: Option<i64>,
}

#[derive(FromRow)]
struct LimitRequestRow {
    id: i64,
    account_id: i64,
    email: String,
    daily_limit: i64,
    message: String,
    created_s: i64,
    state: String,
    answer: String,
    decided_s: Option<i64>,
}

/// Selects requests, with the given condition.
macro_rules! select_limit_requests {
    ($narrowed:literal) => {
        concat!(
            "select r.id, r.account_id, a.email, r.daily_limit, r.message,
                    floor(extract(epoch from r.created_at))::bigint as created_s, r.state, coalesce(r.answer, '') as answer,
                    floor(extract(epoch from r.decided_at))::bigint as decided_s
             from limit_requests r join accounts a on a.id = r.account_id ",
            $narrowed
        )
    };
}

impl LimitRequests<'_> {
    /// Makes a request.
    ///
    /// # Errors
    /// If the account has an open one.
    pub async fn create(self, request: &NewLimitRequest<'_>) -> Result<(), StoreError> {
        let created = sqlx::query(
            "insert into limit_requests (account_id, daily_limit, message) values ($1, $2, $3)
             on conflict (account_id) where state = 'open' do nothing",
        )
        .bind(request.account_id)
        .bind(to_i64(request.daily_limit))
        .bind(request.message)
        .execute(&self.store.pool);
        let created = self.store.with_timeout(created).await?.rows_affected();
        if created == 1 { Ok(()) } else { Err(StoreRefusal::LimitRequestOpen.into()) }
    }

    /// The newest request of an account.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_newest(self, account_id: i64) -> Result<Option<LimitRequest>, StoreError> {
        let newest = sqlx::query_as(select_limit_requests!("where r.account_id = $1 order by r.id desc limit 1"))
            .bind(account_id)
            .fetch_optional(&self.store.pool);
        let row: Option<LimitRequestRow> = self.store.with_timeout(newest).await?;
        Ok(row.and_then(LimitRequestRow::into_limit_request))
    }

    /// Finds a request.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find(self, id: i64) -> Result<Option<LimitRequest>, StoreError> {
        let found = sqlx::query_as(select_limit_requests!("where r.id = $1")).bind(id).fetch_optional(&self.store.pool);
        let row: Option<LimitRequestRow> = self.store.with_timeout(found).await?;
        Ok(row.and_then(LimitRequestRow::into_limit_request))
    }

    /// Requests in a state: open ones oldest first, decided ones newest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self, state: LimitRequestState, count_max: i64) -> Result<Vec<LimitRequest>, StoreError> {
        let sql = match state {
            LimitRequestState::Open => select_limit_requests!("where r.state = $1 order by r.id limit $2"),
            LimitRequestState::Granted | LimitRequestState::Declined => {
                select_limit_requests!("where r.state = $1 order by r.id desc limit $2")
            }
        };
        let page = sqlx::query_as(sql).bind(state.name()).bind(count_max).fetch_all(&self.store.pool);
        let rows: Vec<LimitRequestRow> = self.store.with_timeout(page).await?;
        Ok(rows.into_iter().filter_map(LimitRequestRow::into_limit_request).collect())
    }

    /// Decides an open request, and raises the daily limit of the account if it is granted. Returns the keys whose records
    /// change. `None` if the request does not exist or is decided: of two concurrent decisions, the first counts.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn decide(
        self,
        id: i64,
        decision: LimitDecision,
        answer: &str,
    ) -> Result<Option<Vec<KeyId>>, StoreError> {
        let state = match decision {
            LimitDecision::Grant => LimitRequestState::Granted,
            LimitDecision::Decline => LimitRequestState::Declined,
        };
        let decided = async {
            let mut transaction = self.store.pool.begin().await?;
            let account_id: Option<i64> = sqlx::query_scalar(
                "update limit_requests set state = $2, answer = nullif($3, ''), decided_at = now()
                 where id = $1 and state = 'open' returning account_id",
            )
            .bind(id)
            .bind(state.name())
            .bind(answer)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(account_id) = account_id else { return Ok(None) };
            let mut keys = Vec::new();
            if decision == LimitDecision::Grant {
                // The limit may have been raised further since the request.
                let raised = sqlx::query(
                    "update accounts a set daily_limit = r.daily_limit from limit_requests r, account_limits l
                     where a.id = $1 and r.id = $2 and l.account_id = a.id and l.daily_limit < r.daily_limit",
                )
                .bind(account_id)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
                if raised.rows_affected() == 1 {
                    keys = accounts::update_keys(&mut transaction, account_id).await?;
                }
            }
            transaction.commit().await?;
            Ok(Some(keys))
        };
        self.store.with_timeout::<_, sqlx::Error>(decided).await
    }
}

impl LimitRequestRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_limit_request(self) -> Option<LimitRequest> {
        Some(LimitRequest {
            id: self.id,
            account_id: self.account_id,
            email: self.email,
            daily_limit: self.daily_limit.unsigned_abs(),
            message: self.message,
            created_s: self.created_s,
            state: LimitRequestState::find(&self.state)?,
            answer: self.answer,
            decided_s: self.decided_s,
        })
    }
}
