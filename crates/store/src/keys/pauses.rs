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
    pause_ms: i64,
    counts: Vec<i16>,
    is_current: bool,
    resumed_s: Option<i64>,
    resumed_by: Option<String>,
}

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
        // The resume is the next one after the row that the pause added to the history.
        let row = sqlx::query_as(
            "select k.name, floor(extract(epoch from p.paused_at) * 1000)::bigint as pause_ms, p.counts,
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
             where k.account_id = $1 and p.key_id = $2 and p.burst_window = $3",
        )
        .bind(account_id)
        .bind(id.as_str())
        .bind(burst_epoch)
        .fetch_optional(&self.store.pool);
        let row: Option<RecordedPauseRow> = self.store.with_timeout(row).await?;
        Ok(row.map(|row| RecordedPause {
            key_name: row.name,
            evidence: PauseEvidence::from_row(row.pause_ms, row.counts),
            is_current: row.is_current,
            resumed: row.resumed_s.zip(row.resumed_by),
        }))
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
                 returning id, account_id, burst_window, paused_at
             ), evidence as (
                 insert into pauses (key_id, burst_window, paused_at, counts)
                 select id, burst_window, paused_at, $4 from paused
             ), logged as (
                 insert into history (key_id, at, act, actor) select id, paused_at, 'paused', 'service' from paused
             )
             insert into alerts (key_id, day, kind, burst_window)
             select p.id, (p.paused_at at time zone 'UTC')::date, 'paused', p.burst_window
             from paused p join accounts a on a.id = p.account_id
             where a.alert_paused
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
