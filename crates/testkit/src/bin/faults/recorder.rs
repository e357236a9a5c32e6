//! Collects the history of a run from concurrent tasks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::history::{ChangeRecord, FaultEffect, FaultWindow, History, NodeSample, RequestRecord};

/// Shared by everything that happens in a run.
#[derive(Clone)]
pub(crate) struct Recorder {
    started_at: Instant,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        Self { started_at: Instant::now(), history: Arc::default() }
    }

    /// Time since the run began.
    pub(crate) fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record_request(&self, request: RequestRecord) {
        self.history().requests.push(request);
    }

    pub(crate) fn record_change(&self, change: ChangeRecord) {
        self.history().changes.push(change);
    }

    pub(crate) fn record_sample(&self, sample: NodeSample) {
        self.history().samples.push(sample);
    }

    /// Records that an effect begins now. It ends with [`Self::close_window`].
    pub(crate) fn open_window(&self, effect: FaultEffect, process: Option<usize>) -> usize {
        self.push_window(FaultWindow { effect, process, keys: None, from: self.now(), until: Duration::MAX })
    }

    pub(crate) fn push_window(&self, window: FaultWindow) -> usize {
        let mut history = self.history();
        history.faults.push(window);
        history.faults.len() - 1
    }

    pub(crate) fn close_window(&self, window: usize) {
        let now = self.now();
        if let Some(window) = self.history().faults.get_mut(window) {
            window.until = now;
        }
    }
}
