//! Counters of what became of background work, by outcome.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Label {
    outcome: &'static str,
}

pub(crate) struct Outcomes(Family<Label, Counter>);

impl Outcomes {
    /// Registers a counter with all its outcomes present from the start: an alarm on a rise needs something to rise from.
    pub(crate) fn register(registry: &mut Registry, name: &str, help: &str, outcomes: [&'static str; 2]) -> Self {
        let counts = Family::<Label, Counter>::default();
        for outcome in outcomes {
            drop(counts.get_or_create(&Label { outcome }));
        }
        registry.register(name, help, counts.clone());
        Self(counts)
    }

    pub(crate) fn count(&self, outcome: &'static str) {
        self.0.get_or_create(&Label { outcome }).inc();
    }
}
