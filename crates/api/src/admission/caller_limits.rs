//! The limit per caller that the owner of a key has set. Each node counts by itself, in memory only.
//!
//! A caller is an IPv4 address or an IPv6 /64. A /56 and a /48 have their own, larger limits, because a subscriber may have
//! one of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{Address, KeyId, NetworkId};

/// Length of a slot. Requests are counted by slot, so one counts for up to this much longer than a minute.
const SLOT: Duration = Duration::from_secs(5);
/// Slots of a minute, and the current one.
const SLOTS: usize = 13;

/// Counts the requests of the last minute per key and network.
pub(super) struct CallerLimits {
    counters_max: usize,
    start: Instant,
    state: Mutex<CallerLimitsState>,
}

#[derive(Default)]
struct CallerLimitsState {
    counters: HashMap<(KeyId, NetworkId), CallerCounter>,
    /// The slot in which counters that have ended were last removed.
    purged_at: u64,
}

/// A caller that has reached the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallerRefusal {
    pub(super) limit: u64,
    pub(super) retry_after_s: u64,
}

/// The requests of a network by slot. `counts[0]` are those of the newest slot.
#[derive(Clone, Copy)]
struct CallerCounter {
    newest: u64,
    counts: [u16; SLOTS],
}

impl CallerCounter {
    const fn new(slot: u64) -> Self {
        Self { newest: slot, counts: [0; SLOTS] }
    }

    fn advance_to(&mut self, slot: u64) {
        let passed = usize::try_from(slot.saturating_sub(self.newest)).unwrap_or(SLOTS).min(SLOTS);
        self.counts.copy_within(..SLOTS - passed, passed);
        self.counts[..passed].fill(0);
        self.newest = self.newest.max(slot);
    }

    /// Number of slots until a request is below the limit; 0 if it is now.
    fn slots_until_below(&self, limit: u64) -> u64 {
        let mut count: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let oldest_first = self.counts.iter().rev();
        let ended = oldest_first.take_while(|ended| {
            let is_over = count >= limit;
            count = count.saturating_sub(u64::from(**ended));
            is_over
        });
        ended.count() as u64
    }

    const fn has_ended(&self, slot: u64) -> bool {
        slot.saturating_sub(self.newest) >= SLOTS as u64
    }
}

impl CallerLimits {
    pub(super) fn new(counters_max: usize) -> Self {
        Self { counters_max, start: Instant::now(), state: Mutex::default() }
    }

    /// Counts a request. Fails if the caller has reached the limit, and then does not count it. Returns `false` if there are
    /// too many callers to count this one.
    pub(super) fn take(&self, key: KeyId, caller: Address, limit: u32) -> Result<bool, CallerRefusal> {
        self.take_at(key, caller, limit, self.start.elapsed())
    }

    fn take_at(&self, key: KeyId, caller: Address, limit: u32, elapsed: Duration) -> Result<bool, CallerRefusal> {
        let slot = elapsed.as_secs() / SLOT.as_secs();
        let subnet = caller.subnet();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new_counters = 0;
        for (network, factor) in subnet.networks() {
            let Some(counter) = state.counters.get_mut(&(key, network)) else {
                new_counters += 1;
                continue;
            };
            counter.advance_to(slot);
            let slots = counter.slots_until_below(u64::from(limit) * u64::from(factor));
            if slots > 0 {
                let into_slot_s = elapsed.as_secs() % SLOT.as_secs();
                return Err(CallerRefusal { limit: limit.into(), retry_after_s: slots * SLOT.as_secs() - into_slot_s });
            }
        }
        let (fits, mut is_counted) = (state.has_capacity(self.counters_max, new_counters, slot), false);
        for (network, _) in subnet.networks() {
            if fits {
                state.counters.entry((key, network)).or_insert_with(|| CallerCounter::new(slot));
            }
            // Without capacity, a new /64 still counts for its /48.
            let Some(counter) = state.counters.get_mut(&(key, network)) else { continue };
            counter.counts[0] = counter.counts[0].saturating_add(1);
            is_counted = true;
        }
        Ok(is_counted)
    }

    /// Uncounts a request that was counted a moment ago and is not admitted.
    pub(super) fn give_back(&self, key: KeyId, caller: Address) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for (network, _) in caller.subnet().networks() {
            let Some(counter) = state.counters.get_mut(&(key, network)) else { continue };
            if let Some(newest) = counter.counts.iter_mut().find(|count| **count > 0) {
                *newest -= 1;
            }
            if counter.counts == [0; SLOTS] {
                state.counters.remove(&(key, network));
            }
        }
    }
}

impl CallerLimitsState {
    /// Whether so many counters can be added. Once per slot, counters that have ended are removed if it is needed.
    fn has_capacity(&mut self, counters_max: usize, new_counters: usize, slot: u64) -> bool {
        if self.counters.len() + new_counters > counters_max && self.purged_at < slot {
            self.purged_at = slot;
            self.counters.retain(|_, counter| !counter.has_ended(slot));
        }
        self.counters.len() + new_counters <= counters_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 30;

    fn address(text: &str) -> Address {
        Address::new(text.parse().expect("address parses"))
    }

    fn key(text: &str) -> KeyId {
        KeyId::parse(text).expect("valid id")
    }

    fn take_all(limits: &CallerLimits, caller: Address, requests: u32, at_s: u64) -> u32 {
        let take = |_: &u32| limits.take_at(key("0123456789"), caller, LIMIT, Duration::from_secs(at_s)).is_ok();
        (0..requests).filter(take).count() as u32
    }

    #[test]
    fn caller_is_limited_in_any_minute() {
        let (limits, caller) = (CallerLimits::new(100), address("192.0.2.1"));
        assert_eq!(take_all(&limits, caller, 20, 2), 20);
        assert_eq!(take_all(&limits, caller, 20, 33), 10);
        let refused = limits.take_at(key("0123456789"), caller, LIMIT, Duration::from_secs(33));
        assert_eq!(refused, Err(CallerRefusal { limit: 30, retry_after_s: 32 }));
        assert_eq!(take_all(&limits, caller, 20, 64), 0);
        // The first 20 have ended.
        assert_eq!(take_all(&limits, caller, 50, 65), 20);
        assert_eq!(take_all(&limits, caller, 50, 1_000), 30);
    }

    #[test]
    fn callers_and_keys_are_counted_separately() {
        let limits = CallerLimits::new(100);
        assert_eq!(take_all(&limits, address("192.0.2.1"), 40, 0), 30);
        assert_eq!(take_all(&limits, address("192.0.2.2"), 40, 0), 30);
        let other_key = limits.take_at(key("abcdefghij"), address("192.0.2.1"), LIMIT, Duration::ZERO);
        assert_eq!(other_key, Ok(true));
    }

    #[test]
    fn one_48_has_four_times_the_limit() {
        let limits = CallerLimits::new(10_000);
        let callers = (0..500).map(|subnet: u32| address(&format!("2001:db8:1:{subnet:x}::1")));
        assert_eq!(callers.map(|caller| take_all(&limits, caller, 10, 0)).sum::<u32>(), 4 * LIMIT);
        assert_eq!(take_all(&limits, address("2001:db8:2::1"), 40, 0), LIMIT);
    }

    #[test]
    fn request_that_is_given_back_leaves_no_counter() {
        let limits = CallerLimits::new(3);
        for caller in ["192.0.2.1", "2001:db8::1"] {
            for _ in 0..100 {
                assert_eq!(limits.take_at(key("0123456789"), address(caller), LIMIT, Duration::ZERO), Ok(true));
                limits.give_back(key("0123456789"), address(caller));
            }
        }
        assert!(limits.state.lock().expect("not poisoned").counters.is_empty());
    }

    #[test]
    fn callers_that_do_not_fit_are_admitted() {
        let limits = CallerLimits::new(2);
        for caller in ["192.0.2.1", "192.0.2.2"] {
            assert_eq!(take_all(&limits, address(caller), 40, 0), 30);
        }
        let take = |at_s| limits.take_at(key("0123456789"), address("192.0.2.3"), LIMIT, Duration::from_secs(at_s));
        assert_eq!(take(0), Ok(false));
        assert_eq!(take_all(&limits, address("192.0.2.1"), 1, 0), 0, "counters are not replaced");
        assert_eq!(take(65), Ok(true), "the others have ended");
    }

    #[test]
    fn new_64_counts_for_its_48_although_it_does_not_fit() {
        let limits = CallerLimits::new(3);
        assert_eq!(take_all(&limits, address("2001:db8:1:1::1"), 40, 0), LIMIT);
        let callers = (2..256).map(|subnet: u32| address(&format!("2001:db8:1:{subnet:x}::1")));
        assert_eq!(callers.map(|caller| take_all(&limits, caller, 1, 0)).sum::<u32>(), LIMIT, "those of the /56");
        let callers = (2..200).map(|subnet: u32| address(&format!("2001:db8:1:{subnet:x}00::1")));
        assert_eq!(callers.map(|caller| take_all(&limits, caller, 1, 0)).sum::<u32>(), 2 * LIMIT, "those of the /48");
        assert_eq!(limits.take_at(key("0123456789"), address("192.0.2.3"), LIMIT, Duration::ZERO), Ok(false));
    }
}
