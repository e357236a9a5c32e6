//! Pauses and their evidence.

use ipseity_domain::{KeyId, KeyPause, is_mutant};
use sqlx::FromRow;

use crate::access::Keys;
use crate::error::StoreError;
use crate::keys::summary::PauseEvidence;

/// A pause in the history of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPause {
    /// The key's name.
    pub key_name: String,
    /// The burst epoch that it ended.
    pub burst_epoch: i64,
    /// The evidence.
    pub evidence: PauseEvidence,
    /// Whether the key is still paused by it.
    pub is_current: bool,
    /// When it was resumed, as Unix time in seconds, and the actor: `owner` or `operator`.
    pub resumed: Option<(i64, String)>,
}

#[derive(FromRow)]
struct RecordedPauseRow {
    name: String,
    burst_window: i64,
    pause_ms: i64,
    counts: Vec<i16>,
    is_current: bool,
    resumed_s: Option<i64>,
    resumed_by: Option<String>,
}

/// The pauses of the key $2 of the account $1: all, or the one that ended the burst epoch $3. The resume of a pause is the next one
/// after the row that the pause added to the history.
const SELECT_PAUSES: &str = "
    select k.name, p.burst_window, floor(extract(epoch from p.paused_at) * 1000)::bigint as pause_ms, p.counts,
        k.paused_at is not null and k.burst_window = p.burst_window as is_current,
        floor(extract(epoch from resumed.at))::bigint as resumed_s, resumed.actor as resumed_by
    from pauses p
    join keys k on k.id = p.key_id
    left join lateral (
        select h.at, h.actor from history h
        where h.key_id = p.key_id and h.act = 'resumed' and h.id > (
            select max(id) from history where key_id = p.key_id and act = 'paused' and at = p.paused_at)
        order by h.id limit 1
    ) resumed on true
    where k.account_id = $1 and p.key_id = $2 and ($3::bigint is null or p.burst_window = $3)
    order by p.burst_window desc limit $4";

impl Keys<'_> {
    /// Finds the pause that ended a burst epoch of one of an account's keys.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn find_pause(
        self,
        account_id: i64,
        id: KeyId,
        burst_epoch: i64,
    ) -> Result<Option<RecordedPause>, StoreError> {
        Ok(self.select_pauses(account_id, id, Some(burst_epoch), 1).await?.pop())
    }

    /// The newest pauses of one of an account's keys, newest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list_pauses(
        self,
        account_id: i64,
        id: KeyId,
        count_max: i64,
    ) -> Result<Vec<RecordedPause>, StoreError> {
        self.select_pauses(account_id, id, None, count_max).await
    }

    async fn select_pauses(
        self,
        account_id: i64,
        id: KeyId,
        burst_epoch: Option<i64>,
        count_max: i64,
    ) -> Result<Vec<RecordedPause>, StoreError> {
        let rows = sqlx::query_as(SELECT_PAUSES)
            .bind(account_id)
            .bind(id.as_str())
            .bind(burst_epoch)
            .bind(count_max)
            .fetch_all(&self.store.pool);
        let rows: Vec<RecordedPauseRow> = self.store.with_timeout(rows).await?;
        Ok(rows.into_iter().map(RecordedPauseRow::into_pause).collect())
    }

    /// Records a pause with evidence, history row and alert. Ignores duplicates and pauses of earlier burst epochs.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn record_pause(self, pause: &KeyPause) -> Result<(), StoreError> {
        if is_mutant("pause-not-recorded") {
            return Ok(());
        }
        let counts: Vec<i16> = pause.counts.iter().map(|count| i16::try_from(*count).unwrap_or(i16::MAX)).collect();
        let written = sqlx::query(
            "with paused as (
                 update keys set paused_at = to_timestamp($3 / 1000.0), generation = generation + 1
                 where id = $1 and burst_window = $2 and paused_at is null
                 returning id, burst_window, paused_at
             ), evidence as (
                 insert into pauses (key_id, burst_window, paused_at, counts)
                 select id, burst_window, paused_at, $4 from paused
             ), logged as (
                 insert into history (key_id, at, act, actor) select id, paused_at, 'paused', 'service' from paused
             )
             insert into alerts (key_id, day, kind, burst_window)
             select id, (paused_at at time zone 'UTC')::date, 'paused', burst_window from paused
             on conflict do nothing",
        )
        .bind(pause.key.as_str())
        .bind(i64::try_from(pause.burst_epoch).unwrap_or(i64::MAX))
        .bind(i64::try_from(pause.at_ms).unwrap_or(i64::MAX))
        .bind(counts)
        .execute(&self.store.pool);
        self.store.with_timeout(written).await?;
        Ok(())
    }
}

impl RecordedPauseRow {
    fn into_pause(self) -> RecordedPause {
        RecordedPause {
            key_name: self.name,
            burst_epoch: self.burst_window,
            evidence: PauseEvidence::from_row(self.pause_ms, self.counts),
            is_current: self.is_current,
            resumed: self.resumed_s.zip(self.resumed_by),
        }
    }
}
