//! Who holds how many connections, by neighbourhood. In memory only, and forgotten with the last connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Address, Neighbourhood};

/// The connections that are open, counted by neighbourhood; it holds no more of them than there are connections.
pub(crate) struct Crowd {
    each_max: usize,
    counts: Mutex<HashMap<Neighbourhood, usize>>,
}

impl Crowd {
    pub(crate) fn new(each_max: usize) -> Arc<Self> {
        Arc::new(Self { each_max, counts: Mutex::default() })
    }

    /// A place for one more connection from there, unless the neighbourhood holds all that it may.
    pub(crate) fn enter(self: &Arc<Self>, address: Address) -> Option<Place> {
        let neighbourhood = address.neighbourhood();
        let mut counts = self.counts();
        let count = counts.entry(neighbourhood).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        Some(Place { crowd: Arc::clone(self), neighbourhood })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Neighbourhood, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place in the crowd, free again when dropped.
pub(crate) struct Place {
    crowd: Arc<Crowd>,
    neighbourhood: Neighbourhood,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts();
        if let Some(count) = counts.get_mut(&self.neighbourhood) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.neighbourhood);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_and_nothing_is_remembered() {
        let crowd = Crowd::new(2);
        let enter = |text: &str| crowd.enter(Address::new(text.parse().expect("an address")));
        let (first, second) = (enter("2001:db8::1"), enter("2001:db8::2"));
        assert!(first.is_some() && second.is_some() && enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
        drop(first);
        assert!(enter("2001:db8::3").is_some());
        drop(second);
        assert!(crowd.counts().is_empty());
    }
}
