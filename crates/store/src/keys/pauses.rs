//! Pauses and their evidence.

use ipseity_domain::{KeyPause, is_mutant};

use crate::access::Keys;
use crate::error::StoreError;

impl Keys<'_> {
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
