//! The keys that GitHub signs its reports with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::auth::throttle::{RetryAfter, Throttle};
use crate::leaks::signed_report::ScannerKeys;

/// How often the published keys are read, at most. Anyone can send an unknown key identifier.
const FETCHES_PER_PERIOD_MAX: u32 = 5;
const FETCH_PERIOD: Duration = Duration::from_secs(600);

/// The published keys, read when a report needs them.
pub(crate) struct GithubKeys {
    current: Mutex<Option<Arc<ScannerKeys>>>,
    fetches: Throttle<()>,
}

impl GithubKeys {
    pub(crate) fn new() -> Self {
        Self { current: Mutex::new(None), fetches: Throttle::new(FETCHES_PER_PERIOD_MAX, FETCH_PERIOD, 1) }
    }

    pub(crate) fn find(&self, identifier: &str) -> Option<Arc<ScannerKeys>> {
        self.lock().as_ref().filter(|keys| keys.contains(identifier)).map(Arc::clone)
    }

    pub(crate) fn replace(&self, keys: Arc<ScannerKeys>) {
        *self.lock() = Some(keys);
    }

    /// Counts an attempt to read the keys, if it is allowed.
    pub(crate) fn record_fetch(&self) -> Result<(), RetryAfter> {
        self.fetches.record_attempt(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<ScannerKeys>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
