//! Limits on what a single holder, such as an account, may use at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the permits of each holder. Only current holders take memory.
pub(crate) struct Permits<K> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    per_holder_max: usize,
}

/// A permit; returned when dropped.
pub(crate) struct Permit<K: Hash + Eq> {
    held: Arc<Mutex<HashMap<K, usize>>>,
    holder: K,
}

impl<K: Hash + Eq + Copy> Permits<K> {
    pub(crate) fn new(per_holder_max: usize) -> Self {
        Self { held: Arc::default(), per_holder_max }
    }

    /// Takes a permit, unless the holder has the maximum.
    pub(crate) fn try_acquire(&self, holder: K) -> Option<Permit<K>> {
        let mut held = lock(&self.held);
        let count = held.entry(holder).or_default();
        if *count >= self.per_holder_max {
            return None;
        }
        *count += 1;
        Some(Permit { held: Arc::clone(&self.held), holder })
    }
}

impl<K: Hash + Eq> Drop for Permit<K> {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        match held.get_mut(&self.holder) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(held.remove(&self.holder)),
        }
    }
}

fn lock<K>(held: &Mutex<HashMap<K, usize>>) -> MutexGuard<'_, HashMap<K, usize>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_per_holder_and_returned_when_dropped() {
        let permits = Permits::new(2);
        let first = permits.try_acquire("ada").expect("a permit is free");
        let _second = permits.try_acquire("ada").expect("a permit is free");
        assert!(permits.try_acquire("ada").is_none());
        let others = permits.try_acquire("bob").expect("another holder is not affected");
        drop((first, others));
        let _third = permits.try_acquire("ada").expect("a permit was returned");
        assert!(permits.try_acquire("ada").is_none());
        assert_eq!(lock(&permits.held).len(), 1, "holders without a permit take no memory");
    }
}
