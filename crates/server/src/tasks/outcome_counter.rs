//! Counters of background runs, by outcome.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

pub(crate) const SUCCEEDED: &str = "succeeded";
/// Outcome of a run that is retried.
pub(crate) const FAILED: &str = "failed";

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

pub(crate) struct OutcomeCounter(Family<OutcomeLabel, Counter>);

impl OutcomeCounter {
    /// Registers a counter with every outcome at zero, so that alerts on an increase see the first one.
    pub(crate) fn register(registry: &mut Registry, name: &str, help: &str, outcomes: [&'static str; 2]) -> Self {
        let family = Family::<OutcomeLabel, Counter>::default();
        for outcome in outcomes {
            drop(family.get_or_create(&OutcomeLabel { outcome }));
        }
        registry.register(name, help, family.clone());
        Self(family)
    }

    pub(crate) fn inc(&self, outcome: &'static str) {
        self.0.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
