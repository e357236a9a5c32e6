//! Counters of key changes.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Counters of key changes. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct KeyMetrics {
    pub(crate) record_conflicts: Counter,
    pub(crate) failed_changes: Counter,
}

impl KeyMetrics {
    /// Creates and registers the counters.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "key_record_conflicts",
            "Key records in Redis that were newer than PostgreSQL's and were invalidated",
            metrics.record_conflicts.clone(),
        );
        registry.register(
            "outbox_changes_failed",
            "Attempts to apply a key change from the outbox that failed",
            metrics.failed_changes.clone(),
        );
        metrics
    }
}
