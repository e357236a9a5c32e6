//! The breaker: after a few missed verdicts in a row the counter store is left alone, until whoever heals it says that it is back.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) struct Breaker {
    failures: AtomicU32,
    failures_max: u32,
    is_open: AtomicBool,
}

impl Breaker {
    pub(crate) const fn new(failures_max: u32) -> Self {
        Self { failures: AtomicU32::new(0), failures_max, is_open: AtomicBool::new(false) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    pub(crate) fn answered(&self) {
        // Read first: a line that all requests write would be fought over by all processors.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Notes a missed verdict; `true` when this one opens the breaker.
    pub(crate) fn missed(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        failures >= self.failures_max && !self.is_open.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_in_a_row_open_it_and_only_closing_closes_it() {
        let breaker = Breaker::new(3);
        for _ in 0..10 {
            assert!(!breaker.missed());
            assert!(!breaker.missed());
            breaker.answered();
        }
        assert!(!breaker.missed() && !breaker.missed() && breaker.missed());
        assert!(!breaker.missed(), "it opens once");
        breaker.answered();
        assert!(breaker.is_open());
        breaker.close();
        assert!(!breaker.is_open());
    }
}
