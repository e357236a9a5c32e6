//! Limits on the memory of requests and unsent responses: per connection, per client subnet and per node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on memory, within the limit of its parent.
pub(crate) struct MemoryBudget {
    used: AtomicUsize,
    bytes_max: usize,
    parent: Option<Arc<Self>>,
}

impl MemoryBudget {
    pub(crate) fn new(bytes_max: usize, parent: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), bytes_max, parent })
    }

    /// Reserves memory here and in every parent, unless one of them has too little left.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        self.try_reserve_quarters(bytes, 4)
    }

    /// Reserves memory if no budget is then used by more than this many quarters. The rest is left for other purposes.
    pub(crate) fn try_reserve_quarters(self: &Arc<Self>, bytes: usize, quarters: usize) -> Option<Reservation> {
        for (parents, budget) in self.levels().enumerate() {
            let used = budget.used.fetch_add(bytes, Ordering::Relaxed);
            if used.saturating_add(bytes) > budget.bytes_max.saturating_mul(quarters) / 4 {
                self.levels().take(parents + 1).for_each(|budget| budget.release(bytes));
                return None;
            }
        }
        Some(Reservation { budget: Arc::clone(self), bytes })
    }

    /// This budget, its parent, and so on.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |budget| budget.parent.as_deref())
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Reserved memory, released when dropped.
pub(crate) struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.levels().for_each(|budget| budget.release(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservation_counts_in_every_parent_until_dropped() {
        let node = MemoryBudget::new(100, None);
        let subnet = MemoryBudget::new(60, Some(Arc::clone(&node)));
        let connection = MemoryBudget::new(40, Some(Arc::clone(&subnet)));
        let other_connection = MemoryBudget::new(40, Some(Arc::clone(&subnet)));
        let first = connection.try_reserve(40).expect("connection has memory left");
        assert!(connection.try_reserve(1).is_none() && other_connection.try_reserve(21).is_none());
        assert!(other_connection.try_reserve(20).is_some());
        let other_subnet = MemoryBudget::new(100, Some(Arc::clone(&node)));
        assert!(other_subnet.try_reserve(61).is_none() && other_subnet.try_reserve(60).is_some());
        assert!(
            other_subnet.try_reserve_quarters(35, 3).is_some() && other_subnet.try_reserve_quarters(36, 3).is_none()
        );
        drop(first);
        assert!(other_subnet.try_reserve(100).is_some());
        for budget in [&node, &subnet, &connection, &other_connection, &other_subnet] {
            assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        }
    }
}
