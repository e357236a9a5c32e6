//! Metrics of the API. Labels are bounded: operations and error codes, never clients or keys.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    operation: &'static str,
    outcome: &'static str,
}

/// Counters of the API; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    answers: Family<Outcome, Counter>,
    verdict_s: Arc<Histogram>,
    fills: Counter,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            answers: Family::default(),
            verdict_s: Arc::new(Histogram::new(exponential_buckets(0.000_1, 2.0, 14))),
            fills: Counter::default(),
        };
        registry.register("answers", "Requests answered, by operation and outcome", metrics.answers.clone());
        registry.register("verdict_seconds", "Time for a verdict of the counter store", (*metrics.verdict_s).clone());
        registry.register("fills", "Records filled from the durable store", metrics.fills.clone());
        metrics
    }

    pub(crate) fn answered(&self, operation: &'static str, outcome: &'static str) {
        self.answers.get_or_create(&Outcome { operation, outcome }).inc();
    }

    pub(crate) fn verdict(&self, took: Duration) {
        self.verdict_s.observe(took.as_secs_f64());
    }

    pub(crate) fn filled(&self) {
        self.fills.inc();
    }
}
