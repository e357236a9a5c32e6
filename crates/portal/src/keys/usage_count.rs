//! Requests by their outcome.

/// Requests, successful and by the reason of their rejection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageCount {
    pub(crate) admitted: u64,
    pub(crate) by_reason: [u64; 6],
}

impl UsageCount {
    pub(crate) fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        for (sum, count) in self.by_reason.iter_mut().zip(other.by_reason) {
            *sum += count;
        }
    }

    pub(crate) fn rejected_total(&self) -> u64 {
        self.by_reason.iter().sum()
    }

    /// Successful and rejected requests.
    pub(crate) fn total(&self) -> u64 {
        self.admitted + self.rejected_total()
    }
}
