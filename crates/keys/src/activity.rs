//! The status of keys, from PostgreSQL and from what Redis counts.

use ipseity_domain::{DAY_S, KeyId, KeyState, KeyStatus, LimitLevel, UtcDay, causes};
use ipseity_ledger::{Ledger, LedgerError, RecentUse};
use ipseity_store::{FoundKey, KeySummary};

/// The requests of a key that its status depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyActivity {
    /// Admitted requests of the current UTC day.
    pub used_today: u64,
    /// How much of the burst limit is used. [`LimitLevel::Normal`] while Redis is unavailable.
    pub burst: LimitLevel,
}

/// What PostgreSQL has of a key whose status is wanted. Small, because every open page keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredKey {
    id: KeyId,
    state: KeyState,
    expires_at_s: Option<u64>,
    /// As of the last usage flush.
    used_today: u64,
    daily_limit: u64,
    burst_limit: usize,
}

impl StoredKey {
    /// The status of the key with these requests, at this Unix time.
    #[must_use]
    pub fn status(&self, activity: KeyActivity, now_s: u64) -> KeyStatus {
        let day = LimitLevel::of(activity.used_today, self.daily_limit);
        KeyStatus::of(self.state, has_passed(self.expires_at_s, now_s), day, activity.burst)
    }
}

impl From<&KeySummary> for StoredKey {
    fn from(row: &KeySummary) -> Self {
        let KeySummary { id, state, used_today, daily_limit, burst_limit, .. } = *row;
        Self { id, state, expires_at_s: row.restrictions.expires_at_s, used_today, daily_limit, burst_limit }
    }
}

impl From<&FoundKey> for StoredKey {
    fn from(found: &FoundKey) -> Self {
        let FoundKey { id, state, is_expired, used_today, daily_limit, burst_limit, .. } = *found;
        // A search knows only whether the time has passed.
        let expires_at_s = is_expired.then_some(0);
        Self { id, state, expires_at_s, used_today, daily_limit, burst_limit }
    }
}

impl KeyActivity {
    /// Reads the requests of keys from Redis, in the order of `keys`.
    ///
    /// # Errors
    /// Fails if Redis does not answer in time.
    pub async fn read(ledger: &Ledger, keys: &[StoredKey], now_s: u64) -> Result<Vec<Self>, LedgerError> {
        let read: Vec<(KeyId, usize)> = keys.iter().map(|key| (key.id, key.burst_limit)).collect();
        let recent = ledger.recent_use_of(&read).await?;
        let today = day_at(now_s);
        Ok(keys.iter().zip(recent).map(|(key, recent)| Self::merge(key, recent, today)).collect())
    }

    /// Reads the requests of keys from Redis or, if it is unavailable, takes those of the last usage flush.
    pub async fn read_or_last_flush(ledger: &Ledger, keys: &[StoredKey], now_s: u64) -> Vec<Self> {
        Self::read(ledger, keys, now_s).await.unwrap_or_else(|error| {
            tracing::warn!(error = %causes(&error), "live usage unavailable; showing the last flush");
            let last_flush = |key: &StoredKey| Self { used_today: key.used_today, burst: LimitLevel::Normal };
            keys.iter().map(last_flush).collect()
        })
    }

    fn merge(key: &StoredKey, recent: RecentUse, today: UtcDay) -> Self {
        let live = recent.usage.filter(|usage| usage.day == today).map_or(0, |usage| usage.count);
        Self { used_today: key.used_today.max(live), burst: recent.burst }
    }
}

/// Whether the time of a key is over, in any state.
#[must_use]
pub fn has_expired(row: &KeySummary, now_s: u64) -> bool {
    has_passed(row.restrictions.expires_at_s, now_s)
}

fn has_passed(expires_at_s: Option<u64>, now_s: u64) -> bool {
    expires_at_s.is_some_and(|expires_at_s| expires_at_s <= now_s)
}

fn day_at(unix_s: u64) -> UtcDay {
    UtcDay(u32::try_from(unix_s / DAY_S).unwrap_or(u32::MAX))
}
