//! Pauses and their evidence.

use domain::Pause;

use crate::error::StoreError;
use crate::pool::Store;

impl Store {
    /// Writes a pause. A duplicate, or one from a window that a resume has closed since, changes nothing.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn record_pause(&self, pause: &Pause) -> Result<(), StoreError> {
        let counts: Vec<i16> = pause.counts.iter().map(|count| i16::try_from(*count).unwrap_or(i16::MAX)).collect();
        let written = sqlx::query(
            "with paused as (
                 update keys set paused_at = to_timestamp($3 / 1000.0), generation = generation + 1
                 where id = $1 and burst_window = $2 and paused_at is null
                 returning id, burst_window, paused_at
             )
             insert into pauses (key_id, burst_window, paused_at, counts) select id, burst_window, paused_at, $4 from paused",
        )
        .bind(pause.key.as_str())
        .bind(i64::try_from(pause.window).unwrap_or(i64::MAX))
        .bind(i64::try_from(pause.at_ms).unwrap_or(i64::MAX))
        .bind(counts)
        .execute(&self.pool);
        self.within(written).await?;
        Ok(())
    }
}
