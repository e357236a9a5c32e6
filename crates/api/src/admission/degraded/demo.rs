//! The demo's quota in degraded mode: the last count from Redis plus the requests admitted since.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipseity_domain::{BURST_LIMIT, DailyUsage, UtcDay};
use ipseity_ledger::{DemoReconcileBatch, DemoVerdict, LedgerTime, Quota};

use crate::admission::degraded::local_limiter::usage_on;

#[derive(Default)]
pub(crate) struct DemoQuota(Mutex<DemoQuotaState>);

#[derive(Default)]
struct DemoQuotaState {
    usage: Option<DailyUsage>,
    pending_days: BTreeMap<UtcDay, u64>,
    /// The batch that was sent. It is sent again unchanged until Redis confirms it.
    in_flight: Option<DemoReconcileBatch>,
}

impl DemoQuota {
    /// Merges a count from Redis or PostgreSQL.
    pub(crate) fn merge_usage(&self, usage: DailyUsage) {
        let mut state = self.lock();
        state.usage = [state.usage, Some(usage)].into_iter().flatten().max_by_key(|usage| (usage.day, usage.count));
    }

    pub(crate) fn has_usage(&self) -> bool {
        self.lock().usage.is_some()
    }

    /// Decides on a request. An admitted request becomes a pending charge.
    pub(crate) fn check(&self, now: LedgerTime, limit: u64) -> DemoVerdict {
        let mut state = self.lock();
        let (day, used) = usage_on(state.usage, now);
        let used = used + state.pending_on(day);
        let quota = |used| Quota { now, limit, day, used, burst_limit: BURST_LIMIT };
        if used >= limit {
            return DemoVerdict::Exhausted(quota(limit));
        }
        *state.pending_days.entry(day).or_default() += 1;
        DemoVerdict::Admitted { quota: quota(used + 1), yesterday: None }
    }

    /// The batch to send now.
    pub(super) fn take_batch(&self) -> Option<DemoReconcileBatch> {
        let mut state = self.lock();
        if state.in_flight.is_none() && !state.pending_days.is_empty() {
            let days = std::mem::take(&mut state.pending_days)
                .into_iter()
                .map(|(day, count)| DailyUsage { day, count })
                .collect();
            state.in_flight = Some(DemoReconcileBatch { batch_id: fastrand::u64(..), days });
        }
        state.in_flight.clone()
    }

    /// Marks the sent batch as confirmed: the count in Redis now includes it.
    pub(super) fn confirm_batch(&self) {
        let mut state = self.lock();
        for DailyUsage { day, count } in state.in_flight.take().map(|batch| batch.days).unwrap_or_default() {
            state.usage = match state.usage {
                Some(usage) if usage.day > day => Some(usage),
                Some(usage) if usage.day == day => Some(DailyUsage { day, count: usage.count + count }),
                Some(_) | None => Some(DailyUsage { day, count }),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, DemoQuotaState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DemoQuotaState {
    fn pending_on(&self, day: UtcDay) -> u64 {
        let in_flight = self.in_flight.iter().flat_map(|batch| &batch.days).filter(|usage| usage.day == day);
        self.pending_days.get(&day).copied().unwrap_or(0) + in_flight.map(|usage| usage.count).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_quota_counts_in_flight_requests_until_confirmed() {
        let (demo_quota, now) = (DemoQuota::default(), LedgerTime(1_800_014_400_000));
        demo_quota.merge_usage(DailyUsage { day: now.day(), count: 998 });
        assert!(matches!(demo_quota.check(now, 1000), DemoVerdict::Admitted { quota, .. } if quota.used == 999));
        assert_eq!(demo_quota.take_batch().expect("pending batch").days, [DailyUsage { day: now.day(), count: 1 }]);
        assert!(matches!(demo_quota.check(now, 1000), DemoVerdict::Admitted { quota, .. } if quota.used == 1000));
        assert!(matches!(demo_quota.check(now, 1000), DemoVerdict::Exhausted(_)));
    }
}
