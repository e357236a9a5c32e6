//! Metrics of the API. Label values are operations and error codes, never clients or keys, so their number is
//! bounded.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::error::Refusal;
use crate::operation::{Operation, UNMATCHED_REFUSALS};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

/// `stale` if home has not confirmed a recent ping, `pending` if charges of the key are not reconciled, `not_open` if home has not
/// opened the key, `in_flight` if too many charges of the key are in flight.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WaitLabels {
    reason: &'static str,
}

const LOOKUP_LABEL: &str = Operation::Lookup.label();

/// The label of requests for pages.
pub(crate) const PAGE_LABEL: &str = "page";
/// The label of requests to the management API. Their outcomes are not counted.
pub(crate) const MANAGE_LABEL: &str = "manage";
/// The label of requests that match no route.
pub(crate) const NO_OPERATION_LABEL: &str = "unmatched";

/// The label of lookups with a test key. Only logs, traces and durations have it, because their outcomes are not counted.
pub(crate) const TEST_LABEL: &str = "test";

/// The metrics of the API. Cheap to clone.
#[derive(Clone)]
pub struct ApiMetrics {
    requests: Family<RequestLabels, Counter>,
    request_duration: Family<OperationLabels, Histogram, fn() -> Histogram>,
    /// The counters of lookups by outcome. Most requests are lookups, so they skip the map of `requests`.
    lookup_requests: Arc<[(&'static str, Counter)]>,
    lookup_duration: Histogram,
    charge_duration: Arc<Histogram>,
    home_charge_duration: Arc<Histogram>,
    key_record_fills: Counter,
    degraded: Gauge,
    degraded_decisions: Counter,
    pending_charges: Gauge,
    reconciled_charges: Counter,
    unverifiable_charges: Counter,
    redis_clock_steps: Counter,
    optimistic_requests: Counter,
    optimistic_waits: Family<WaitLabels, Counter>,
    over_limit_requests: Counter,
    uncounted_callers: Counter,
    uncounted_tickets: Counter,
    blocked_requests: Counter,
}

/// The possible outcomes of an operation. A URL that is too long, a wrong host or a blocked client belongs to no operation, and
/// test keys are not counted.
fn outcome_labels(operation: Operation) -> impl Iterator<Item = &'static str> {
    let is_counted = |refusal: &Refusal| {
        !matches!(
            refusal,
            Refusal::UriTooLong
                | Refusal::Misdirected
                | Refusal::NetworkBlocked
                | Refusal::UnknownTestCaller
                | Refusal::UnknownTestFailure
        )
    };
    let refusals = operation.refusals().into_iter().filter(is_counted);
    iter::once("success").chain(refusals.map(Refusal::outcome_label))
}

impl ApiMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let requests: Family<_, Counter> = Family::default();
        let request_duration: Family<_, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_1, 2.0, 16)));
        let metrics = Self {
            lookup_requests: outcome_labels(Operation::Lookup)
                .map(|outcome| {
                    (outcome, requests.get_or_create_owned(&RequestLabels { operation: LOOKUP_LABEL, outcome }))
                })
                .collect(),
            lookup_duration: request_duration.get_or_create_owned(&OperationLabels { operation: LOOKUP_LABEL }),
            requests,
            request_duration,
            charge_duration: Arc::new(Histogram::new(exponential_buckets(0.000_1, 2.0, 14))),
            home_charge_duration: Arc::new(Histogram::new(exponential_buckets(0.001, 2.0, 12))),
            key_record_fills: Counter::default(),
            degraded: Gauge::default(),
            degraded_decisions: Counter::default(),
            pending_charges: Gauge::default(),
            reconciled_charges: Counter::default(),
            unverifiable_charges: Counter::default(),
            redis_clock_steps: Counter::default(),
            optimistic_requests: Counter::default(),
            optimistic_waits: Family::default(),
            over_limit_requests: Counter::default(),
            uncounted_callers: Counter::default(),
            uncounted_tickets: Counter::default(),
            blocked_requests: Counter::default(),
        };
        registry.register("api_requests", "API requests, by operation and outcome", metrics.requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "Duration of HTTP requests in seconds, by operation",
            metrics.request_duration.clone(),
        );
        metrics.create_all_series();
        registry.register(
            "ledger_charge_duration_seconds",
            "Duration of a charge in Redis, in seconds",
            (*metrics.charge_duration).clone(),
        );
        registry.register(
            "home_charge_duration_seconds",
            "Duration of a charge at home that a remote node waits for, in seconds",
            (*metrics.home_charge_duration).clone(),
        );
        registry.register(
            "key_record_fills",
            "Key records copied from PostgreSQL to Redis",
            metrics.key_record_fills.clone(),
        );
        let Self { degraded, degraded_decisions, pending_charges, reconciled_charges, unverifiable_charges, .. } =
            &metrics;
        registry.register(
            "ledger_degraded",
            "1 while the node is in degraded mode because Redis is unreachable",
            degraded.clone(),
        );
        registry.register("degraded_decisions", "Requests decided in degraded mode", degraded_decisions.clone());
        registry.register(
            "pending_charges",
            "Requests admitted in degraded mode and not yet reconciled with Redis",
            pending_charges.clone(),
        );
        registry.register(
            "reconciled_charges",
            "Requests reconciled with Redis after degraded mode",
            reconciled_charges.clone(),
        );
        registry.register(
            "unverifiable_charges",
            "Admitted requests whose charge could not be verified and was not repeated",
            unverifiable_charges.clone(),
        );
        registry.register(
            "redis_clock_steps",
            "Steps of a Redis server's clock by more than a second",
            metrics.redis_clock_steps.clone(),
        );
        registry.register(
            "optimistic_requests",
            "Requests that a remote node admitted before home had charged them",
            metrics.optimistic_requests.clone(),
        );
        registry.register(
            "optimistic_waits",
            "Requests that a remote node in optimistic mode did not admit before home had charged them, by reason",
            metrics.optimistic_waits.clone(),
        );
        registry.register(
            "over_limit_requests",
            "Requests that a remote node admitted before home had charged them, and home would not have admitted",
            metrics.over_limit_requests.clone(),
        );
        registry.register(
            "blocked_requests",
            "Requests of clients in blocked networks",
            metrics.blocked_requests.clone(),
        );
        metrics.register_uncounted(registry);
        metrics
    }

    fn register_uncounted(&self, registry: &mut Registry) {
        registry.register(
            "uncounted_caller_requests",
            "Requests that were not counted for the limit per caller of their key, because there were too many callers",
            self.uncounted_callers.clone(),
        );
        registry.register(
            "uncounted_ticket_requests",
            "Requests that were not counted as a use of their ticket, because there were too many tickets",
            self.uncounted_tickets.clone(),
        );
    }

    /// Creates every series at startup, so that `rate()` and alerts see an increase from 0.
    fn create_all_series(&self) {
        for operation in Operation::ALL {
            drop(self.request_duration.get_or_create(&OperationLabels { operation: operation.label() }));
            outcome_labels(operation).for_each(|outcome| self.create_series(operation.label(), outcome));
        }
        for operation in [PAGE_LABEL, MANAGE_LABEL, NO_OPERATION_LABEL, TEST_LABEL] {
            drop(self.request_duration.get_or_create(&OperationLabels { operation }));
        }
        for reason in ["stale", "pending", "not_open", "in_flight", "restricted"] {
            drop(self.optimistic_waits.get_or_create(&WaitLabels { reason }));
        }
        UNMATCHED_REFUSALS.iter().for_each(|refusal| self.create_series(NO_OPERATION_LABEL, refusal.outcome_label()));
    }

    fn create_series(&self, operation: &'static str, outcome: &'static str) {
        drop(self.requests.get_or_create(&RequestLabels { operation, outcome }));
    }

    pub(crate) fn count_optimistic(&self) {
        self.optimistic_requests.inc();
    }

    pub(crate) fn count_wait(&self, reason: &'static str) {
        self.optimistic_waits.get_or_create(&WaitLabels { reason }).inc();
    }

    pub(crate) fn count_over_limit(&self) {
        self.over_limit_requests.inc();
    }

    pub(crate) fn count_blocked(&self) {
        self.blocked_requests.inc();
    }

    pub(crate) fn count_uncounted_caller(&self) {
        self.uncounted_callers.inc();
    }

    pub(crate) fn count_uncounted_ticket(&self) {
        self.uncounted_tickets.inc();
    }

    pub(crate) fn observe_request_duration(&self, operation: &'static str, elapsed: Duration) {
        if operation == LOOKUP_LABEL {
            self.lookup_duration.observe(elapsed.as_secs_f64());
        } else {
            self.request_duration.get_or_create(&OperationLabels { operation }).observe(elapsed.as_secs_f64());
        }
    }

    pub(crate) fn set_degraded(&self, is_degraded: bool) {
        self.degraded.set(i64::from(is_degraded));
    }

    pub(crate) fn count_degraded_decision(&self) {
        self.degraded_decisions.inc();
    }

    pub(crate) fn set_pending_charges(&self, count: u64) {
        self.pending_charges.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_reconciled(&self, charges: u64) {
        self.reconciled_charges.inc_by(charges);
    }

    pub(crate) fn count_unverifiable(&self, charges: u64) {
        self.unverifiable_charges.inc_by(charges);
    }

    /// Sets the number of steps that the ledger has counted.
    pub(crate) fn set_redis_clock_steps(&self, steps: u64) {
        self.redis_clock_steps.inner().store(steps, Ordering::Relaxed);
    }

    pub(crate) fn count_request(&self, operation: &'static str, outcome: &'static str) {
        let lookup_counter =
            self.lookup_requests.iter().find(|(label, _)| operation == LOOKUP_LABEL && *label == outcome);
        if let Some((_, counter)) = lookup_counter {
            counter.inc();
        } else {
            self.requests.get_or_create(&RequestLabels { operation, outcome }).inc();
        }
    }

    pub(crate) fn observe_home_charge_duration(&self, elapsed: Duration) {
        self.home_charge_duration.observe(elapsed.as_secs_f64());
    }

    pub(crate) fn observe_charge_duration(&self, elapsed: Duration) {
        self.charge_duration.observe(elapsed.as_secs_f64());
    }

    pub(crate) fn count_key_record_fill(&self) {
        self.key_record_fills.inc();
    }
}
