//! Metrics of the API. Labels are bounded: operations and error codes, never clients or keys.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::operation::Operation;
use crate::refusal::Refusal;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Label {
    operation: &'static str,
}

/// What is counted most by far.
const LOOKUP: &str = Operation::Lookup.label();

/// What metrics and logs call requests that are of no operation: those of pages, and those that lead nowhere.
pub(crate) const PAGE: &str = "page";
pub(crate) const NONE: &str = "none";

/// Refusals that no operation is asked for.
const NOWHERE: [Refusal; 4] = [Refusal::NotFound, Refusal::MethodNotAllowed, Refusal::UriTooLong, Refusal::Internal];

/// Counters of the API; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    answers: Family<Outcome, Counter>,
    answer_s: Family<Label, Histogram, fn() -> Histogram>,
    /// Those of lookups, by outcome, which are asked for most by far.
    lookups: Arc<[(&'static str, Counter)]>,
    lookup_s: Histogram,
    verdict_s: Arc<Histogram>,
    fills: Counter,
    recalling: Gauge,
    recalled: Counter,
    unsettled: Gauge,
    settled: Counter,
    untold: Counter,
}

/// What a request of an operation can come to. An address that is too long is of none.
fn outcomes_of(operation: Operation) -> impl Iterator<Item = &'static str> {
    let refusals = operation.refusals().into_iter().filter(|refusal| *refusal != Refusal::UriTooLong);
    iter::once("success").chain(refusals.map(Refusal::outcome))
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let answers: Family<_, Counter> = Family::default();
        let answer_s: Family<_, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 16)));
        let metrics = Self {
            lookups: outcomes_of(Operation::Lookup)
                .map(|outcome| (outcome, answers.get_or_create_owned(&Outcome { operation: LOOKUP, outcome })))
                .collect(),
            lookup_s: answer_s.get_or_create_owned(&Label { operation: LOOKUP }),
            answers,
            answer_s,
            verdict_s: Arc::new(Histogram::new(exponential_buckets(0.000_1, 2.0, 14))),
            fills: Counter::default(),
            recalling: Gauge::default(),
            recalled: Counter::default(),
            unsettled: Gauge::default(),
            settled: Counter::default(),
            untold: Counter::default(),
        };
        registry.register("answers", "Requests answered, by operation and outcome", metrics.answers.clone());
        registry.register("answer_seconds", "Time for an answer, by operation", metrics.answer_s.clone());
        metrics.begin();
        registry.register("verdict_seconds", "Time for a verdict of the counter store", (*metrics.verdict_s).clone());
        registry.register("fills", "Records filled from the durable store", metrics.fills.clone());
        let Self { recalling, recalled, unsettled, settled, untold, .. } = &metrics;
        registry.register(
            "recalling",
            "1 while the counter store is away and memory stands in for it",
            recalling.clone(),
        );
        registry.register("recalled", "Requests judged from memory", recalled.clone());
        registry.register("unsettled", "Admitted requests that wait to reach the counter store", unsettled.clone());
        registry.register("settled", "Admitted requests that reached the counter store later", settled.clone());
        registry.register(
            "untold",
            "Admitted requests of which nobody can tell whether they were charged",
            untold.clone(),
        );
        metrics
    }

    /// Has every series there from the start: an alarm on a rise needs something to rise from, and their number never grows.
    fn begin(&self) {
        for operation in Operation::ALL {
            drop(self.answer_s.get_or_create(&Label { operation: operation.label() }));
            outcomes_of(operation).for_each(|outcome| self.expect(operation.label(), outcome));
        }
        for operation in [PAGE, NONE] {
            drop(self.answer_s.get_or_create(&Label { operation }));
        }
        NOWHERE.iter().for_each(|refusal| self.expect(NONE, refusal.outcome()));
    }

    fn expect(&self, operation: &'static str, outcome: &'static str) {
        drop(self.answers.get_or_create(&Outcome { operation, outcome }));
    }

    pub(crate) fn took(&self, operation: &'static str, took: Duration) {
        if operation == LOOKUP {
            self.lookup_s.observe(took.as_secs_f64());
        } else {
            self.answer_s.get_or_create(&Label { operation }).observe(took.as_secs_f64());
        }
    }

    pub(crate) fn recalling(&self, is_recalling: bool) {
        self.recalling.set(i64::from(is_recalling));
    }

    pub(crate) fn recalled(&self) {
        self.recalled.inc();
    }

    pub(crate) fn unsettled(&self, count: u64) {
        self.unsettled.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn settled(&self, count: u64, untold: u64) {
        self.settled.inc_by(count);
        self.untold.inc_by(untold);
    }

    pub(crate) fn answered(&self, operation: &'static str, outcome: &'static str) {
        let lookup = self.lookups.iter().find(|(known, _)| operation == LOOKUP && *known == outcome);
        if let Some((_, counter)) = lookup {
            counter.inc();
        } else {
            self.answers.get_or_create(&Outcome { operation, outcome }).inc();
        }
    }

    pub(crate) fn verdict(&self, took: Duration) {
        self.verdict_s.observe(took.as_secs_f64());
    }

    pub(crate) fn filled(&self) {
        self.fills.inc();
    }
}
