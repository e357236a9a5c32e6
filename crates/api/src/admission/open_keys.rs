//! The keys that home has opened for this remote node: it admits their requests before home has charged them.
//!
//! A verdict of home opens a key or closes it, and a notice of home closes it. They can arrive in another order than home
//! made them. So a verdict opens a key only if its charge began after everything that has closed the key: it reached Redis
//! after that, and its verdict knows of it. No number and no clock is compared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipseity_domain::{IN_FLIGHT_MAX, KeyId, is_mutant};

pub(super) struct OpenKeys {
    state: Mutex<OpenKeysState>,
    keys_max: usize,
}

#[derive(Default)]
struct OpenKeysState {
    /// Has a key as long as it is open or has a charge in flight.
    keys: HashMap<KeyId, OpenKey>,
    /// Number of times that a key was closed.
    closings: u64,
    /// Requests that were admitted, and whose charges are in flight.
    admitted: usize,
}

#[derive(Default)]
struct OpenKey {
    is_open: bool,
    /// `closings` when the key was last closed.
    closed_at: u64,
    /// All charges in flight, and those whose requests were admitted.
    charges: usize,
    admitted: usize,
}

/// Why a request waits for home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// The key is not open.
    NotOpen,
    /// Too many requests of the key are in flight.
    InFlight,
}

impl OpenKeys {
    pub(super) fn new(keys_max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), keys_max })
    }

    /// Begins the charge of a request that waits for the verdict.
    pub(super) fn begin(self: &Arc<Self>, id: KeyId) -> ChargeInFlight {
        let mut state = self.lock();
        state.keys.entry(id).or_default().charges += 1;
        ChargeInFlight { open_keys: Arc::clone(self), id, closings: state.closings, is_admitted: false }
    }

    /// Begins the charge of a request that is admitted now. Returns the number of such charges of the key before it.
    pub(super) fn begin_admitted(self: &Arc<Self>, id: KeyId) -> Result<(ChargeInFlight, usize), WaitReason> {
        let mut state = self.lock();
        let key = state.keys.get_mut(&id).filter(|key| key.is_open).ok_or(WaitReason::NotOpen)?;
        let admitted_before = key.admitted;
        if admitted_before >= IN_FLIGHT_MAX && !is_mutant("in-flight-not-limited") {
            return Err(WaitReason::InFlight);
        }
        (key.charges, key.admitted) = (key.charges + 1, key.admitted + 1);
        state.admitted += 1;
        let closings = state.closings;
        Ok((ChargeInFlight { open_keys: Arc::clone(self), id, closings, is_admitted: true }, admitted_before))
    }

    pub(super) fn close(&self, id: KeyId) {
        self.lock().close(id);
    }

    pub(super) fn close_all(&self) {
        let mut state = self.lock();
        state.closings += 1;
        let closed_at = state.closings;
        state.keys.retain(|_, key| {
            (key.is_open, key.closed_at) = (false, closed_at);
            key.charges > 0
        });
    }

    /// Number of admitted requests whose charges are in flight.
    pub(super) fn admitted_in_flight(&self) -> usize {
        self.lock().admitted
    }

    fn lock(&self) -> MutexGuard<'_, OpenKeysState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenKeysState {
    fn close(&mut self, id: KeyId) {
        self.closings += 1;
        if let Some(key) = self.keys.get_mut(&id) {
            (key.is_open, key.closed_at) = (false, self.closings);
            if key.charges == 0 {
                self.keys.remove(&id);
            }
        }
    }
}

/// A charge without a verdict. It counts until it is dropped.
pub(super) struct ChargeInFlight {
    open_keys: Arc<OpenKeys>,
    id: KeyId,
    /// Number of closings when it began.
    closings: u64,
    is_admitted: bool,
}

impl ChargeInFlight {
    /// Opens or closes the key by the verdict.
    pub(super) fn finish(self, is_open: bool) {
        let mut state = self.open_keys.lock();
        if !is_open {
            return state.close(self.id);
        }
        let has_capacity = state.keys.len() <= self.open_keys.keys_max;
        if let Some(key) = state.keys.get_mut(&self.id) {
            key.is_open |= has_capacity && (self.closings >= key.closed_at || is_mutant("old-verdict-opens"));
        }
    }
}

impl Drop for ChargeInFlight {
    fn drop(&mut self) {
        let mut state = self.open_keys.lock();
        state.admitted -= usize::from(self.is_admitted);
        if let Some(key) = state.keys.get_mut(&self.id) {
            key.charges -= 1;
            key.admitted -= usize::from(self.is_admitted);
            if key.charges == 0 && !key.is_open {
                state.keys.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_keys() -> (Arc<OpenKeys>, KeyId) {
        (OpenKeys::new(10), KeyId::parse("0123456789").expect("valid id"))
    }

    fn is_open(open_keys: &Arc<OpenKeys>, id: KeyId) -> bool {
        open_keys.begin_admitted(id).is_ok()
    }

    #[test]
    fn verdict_opens_a_key_and_the_next_closes_it() {
        let (open_keys, id) = open_keys();
        assert_eq!(open_keys.begin_admitted(id).err(), Some(WaitReason::NotOpen));
        open_keys.begin(id).finish(true);
        assert!(is_open(&open_keys, id));
        open_keys.begin(id).finish(false);
        assert!(!is_open(&open_keys, id));
        assert!(open_keys.lock().keys.is_empty());
    }

    #[test]
    fn verdict_of_a_charge_that_began_before_a_closing_does_not_open() {
        let (open_keys, id) = open_keys();
        type Close = fn(&Arc<OpenKeys>, KeyId);
        let closings: [Close; 3] = [
            |open_keys, id| open_keys.close(id),
            |open_keys, _| open_keys.close_all(),
            |open_keys, id| open_keys.begin(id).finish(false),
        ];
        for close in closings {
            let before = open_keys.begin(id);
            close(&open_keys, id);
            before.finish(true);
            assert!(!is_open(&open_keys, id));
            let after = open_keys.begin(id);
            after.finish(true);
            assert!(is_open(&open_keys, id));
        }
    }

    #[test]
    fn admitted_requests_in_flight_are_limited_and_freed_by_their_end() {
        let (open_keys, id) = open_keys();
        open_keys.begin(id).finish(true);
        let mut in_flight: Vec<_> =
            (0..IN_FLIGHT_MAX).map(|_| open_keys.begin_admitted(id).expect("not too many").0).collect();
        assert_eq!(open_keys.begin_admitted(id).err(), Some(WaitReason::InFlight));
        // A closed key that is opened again still has them.
        open_keys.close(id);
        open_keys.begin(id).finish(true);
        assert_eq!(open_keys.begin_admitted(id).err(), Some(WaitReason::InFlight));
        in_flight.pop();
        let (_charge, before) = open_keys.begin_admitted(id).expect("one has ended");
        assert_eq!((before, open_keys.admitted_in_flight()), (IN_FLIGHT_MAX - 1, IN_FLIGHT_MAX));
        drop(in_flight);
        open_keys.close_all();
    }
}
