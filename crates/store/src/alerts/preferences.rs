//! Which alerts an account receives by email.

use crate::access::Accounts;
use crate::alerts::kind::AlertKind;
use crate::error::StoreError;

/// The alerts with a setting. Created, rotated and deleted keys always send a security email.
pub const EMAIL_ALERTS: [AlertKind; 6] = [
    AlertKind::Paused,
    AlertKind::Resumed,
    AlertKind::NearBurstLimit,
    AlertKind::NearDailyLimit,
    AlertKind::DailyLimitReached,
    AlertKind::Expiring,
];

impl Accounts<'_> {
    /// The alerts that an account receives by email. None if it does not exist.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn email_alerts(self, account_id: i64) -> Result<Vec<AlertKind>, StoreError> {
        let found = sqlx::query_scalar(
            "select array_remove(array[
                 case when alert_paused then 'paused' end, case when alert_resumed then 'resumed' end,
                 case when alert_near_burst then 'near_burst_limit' end, case when alert_near then 'near_daily_limit' end,
                 case when alert_spent then 'daily_limit_reached' end, case when alert_expiring then 'expiring' end], null)
             from accounts where id = $1",
        )
        .bind(account_id)
        .fetch_optional(&self.store.pool);
        let names: Option<Vec<String>> = self.store.with_timeout(found).await?;
        Ok(names.unwrap_or_default().iter().filter_map(|name| AlertKind::find(name)).collect())
    }

    /// Sets the alerts that an account receives by email.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn set_email_alerts(self, account_id: i64, alerts: &[AlertKind]) -> Result<(), StoreError> {
        let names: Vec<&str> = alerts.iter().map(|kind| kind.name()).collect();
        let set = sqlx::query(
            "update accounts set alert_paused = 'paused' = any($2), alert_resumed = 'resumed' = any($2),
                 alert_near_burst = 'near_burst_limit' = any($2), alert_near = 'near_daily_limit' = any($2),
                 alert_spent = 'daily_limit_reached' = any($2), alert_expiring = 'expiring' = any($2)
             where id = $1",
        )
        .bind(account_id)
        .bind(names)
        .execute(&self.store.pool);
        self.store.with_timeout(set).await?;
        Ok(())
    }
}
