//! Decides when a lookup is retried, and how often. A lookup without a response may have been charged, so each retry
//! can cost one more request of the quota. The budget limits that cost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::{ApiErrorKind, Error};

const ATTEMPTS_MAX: u32 = 3;
const INITIAL_BACKOFF: Duration = Duration::from_millis(250);
const RESPONSES_PER_RETRY: u32 = 10;

/// Retries that a client may make. Ten successful responses add one back, up to the initial number.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    /// A response adds one token, a retry costs ten.
    tokens: AtomicU32,
    tokens_max: u32,
}

impl RetryBudget {
    pub(crate) fn new(retries: u32) -> Self {
        let tokens_max = retries.saturating_mul(RESPONSES_PER_RETRY);
        Self { tokens: AtomicU32::new(tokens_max), tokens_max }
    }

    pub(crate) fn deposit(&self) {
        self.update(|tokens| (tokens < self.tokens_max).then_some(tokens + 1));
    }

    pub(crate) fn withdraw(&self) -> bool {
        self.update(|tokens| tokens.checked_sub(RESPONSES_PER_RETRY))
    }

    fn update(&self, next: impl FnMut(u32) -> Option<u32>) -> bool {
        self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Time to wait before the next attempt, or `None` if a retry is pointless.
pub(crate) fn retry_delay(error: &Error, attempts: u32) -> Option<Duration> {
    if attempts >= ATTEMPTS_MAX {
        return None;
    }
    let backoff = (INITIAL_BACKOFF * 2_u32.pow(attempts - 1)).mul_f64(0.5 + fastrand::f64());
    match error {
        Error::Connection(_) => Some(backoff),
        Error::Api(api_error) => {
            let resets = matches!(
                api_error.kind,
                ApiErrorKind::DailyQuota { .. }
                    | ApiErrorKind::DemoQuota { .. }
                    | ApiErrorKind::CallerLimit { .. }
                    | ApiErrorKind::KeyStatusLimit { .. }
                    | ApiErrorKind::TicketLimit { .. }
            );
            // The random backoff is added to Retry-After so that clients do not all return at the same moment.
            (resets || api_error.status >= 500).then(|| api_error.retry_after.unwrap_or_default() + backoff)
        }
        Error::Setup(_) | Error::Timeout(_) | Error::InsufficientScope(_) | Error::Ticket(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_responses_earn_one_retry_up_to_the_budget() {
        let budget = RetryBudget::new(2);
        (0..100).for_each(|_| budget.deposit());
        assert_eq!([(); 3].map(|()| budget.withdraw()), [true, true, false]);
        (0..9).for_each(|_| budget.deposit());
        assert!(!budget.withdraw());
        budget.deposit();
        assert!(budget.withdraw());
    }

    #[test]
    fn zero_retry_budget_never_allows_a_retry() {
        let budget = RetryBudget::new(0);
        budget.deposit();
        assert!(!budget.withdraw());
    }
}
