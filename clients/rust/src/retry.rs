//! When a lookup may be sent again, and how often. A lookup that got no answer may have been charged, so each retry can
//! cost one more request of the quota; the budget bounds that cost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::{Cause, Error};

const TRIES_MAX: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// One retry is earned by so many answers.
const ANSWERS_PER_RETRY: u32 = 10;

/// Retries that a client may make: a number to begin with, and one more for every ten answers, never above that number.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// In answers, of which ten make a retry.
    left: AtomicU32,
    max: u32,
}

impl RetryBudget {
    pub(crate) fn new(retries: u32) -> Self {
        let max = retries.saturating_mul(ANSWERS_PER_RETRY);
        Self { left: AtomicU32::new(max), max }
    }

    pub(crate) fn earn(&self) {
        self.change(|left| (left < self.max).then_some(left + 1));
    }

    pub(crate) fn spend(&self) -> bool {
        self.change(|left| left.checked_sub(ANSWERS_PER_RETRY))
    }

    fn change(&self, change: impl FnMut(u32) -> Option<u32>) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}

/// How long to wait before the next try; `None` when another one would be in vain.
pub(crate) fn wait(error: &Error, tries: u32) -> Option<Duration> {
    if tries >= TRIES_MAX {
        return None;
    }
    let backoff = (FIRST_WAIT * 2_u32.pow(tries - 1)).mul_f64(0.5 + fastrand::f64());
    match error {
        Error::Connection(_) => Some(backoff),
        Error::Refused(refusal) => {
            let heals = matches!(refusal.cause, Cause::DailyQuota { .. } | Cause::DemoQuota { .. });
            // On top of what the service asks for: its callers should not all come back at the same moment.
            (heals || refusal.status >= 500).then(|| refusal.retry_after.unwrap_or_default() + backoff)
        }
        Error::Setup(_) | Error::Timeout(_) | Error::NarrowKey(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_answers_earn_one_retry_and_no_more_than_there_was() {
        let budget = RetryBudget::new(2);
        (0..100).for_each(|_| budget.earn());
        assert_eq!([(); 3].map(|()| budget.spend()), [true, true, false]);
        (0..9).for_each(|_| budget.earn());
        assert!(!budget.spend());
        budget.earn();
        assert!(budget.spend());
    }

    #[test]
    fn a_budget_of_none_never_allows_one() {
        let budget = RetryBudget::new(0);
        budget.earn();
        assert!(!budget.spend());
    }
}
