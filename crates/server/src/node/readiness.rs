//! Whether a node should receive requests. PostgreSQL and Redis are probed in the background, so that `/ready` answers
//! at any time from the last results, also while they do not.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipseity_api::Api;
use ipseity_domain::causes;
use ipseity_edge::Drain;
use ipseity_home::{CallError, HomeClient};
use ipseity_keys::{DeploymentGuard, DeploymentStatus};
use ipseity_ledger::Ledger;
use ipseity_portal::ProbeState;
use ipseity_store::{SchemaStatus, Store, StoreError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::timeout;

use crate::node::metrics::encode_gauge;
use crate::tasks::periodic::run_every;

const READ_ONLY: &str = "it is read-only: it is a replica, or default_transaction_read_only is on. Let [store] url name the \
                         primary, or turn the setting off.";

/// What a node needs to answer requests.
pub(crate) enum Dependencies {
    Stores { store: Store, ledger: Arc<Ledger>, guard: Arc<DeploymentGuard> },
    Home(Arc<HomeClient>),
}

/// The result of the last probe of a server. `None` before the first one.
#[derive(Default)]
struct LastProbe(Mutex<Option<Result<(), String>>>);

impl LastProbe {
    fn set(&self, server: &str, outcome: Result<(), String>) {
        let mut last = lock(&self.0);
        match (&*last, &outcome) {
            (Some(Err(last)), Err(error)) if last == error => {}
            (_, Err(error)) => tracing::warn!(server, error, "probe failed"),
            (Some(Err(_)), Ok(())) => tracing::info!(server, "probe succeeded again"),
            (_, Ok(())) => {}
        }
        *last = Some(outcome);
    }

    fn is_known(&self) -> bool {
        lock(&self.0).is_some()
    }

    fn error(&self) -> Option<String> {
        match &*lock(&self.0) {
            Some(outcome) => outcome.as_ref().err().cloned(),
            None => Some("not probed yet".to_owned()),
        }
    }
}

/// Whether a node should receive requests.
pub(crate) struct Readiness {
    dependencies: Dependencies,
    api: Arc<Api>,
    is_stopping: AtomicBool,
    /// Whether an operator took it out of load balancers.
    is_drained: AtomicBool,
    store: LastProbe,
    ledger: LastProbe,
    /// Whether Redis has no key record. Only probed while it matters.
    is_ledger_empty: AtomicBool,
    /// Whether PostgreSQL rejected writes when it was last reachable. It can still answer.
    is_read_only: AtomicBool,
    /// How the schema differed when PostgreSQL was last reachable.
    schema: Mutex<SchemaStatus>,
}

impl Readiness {
    pub(crate) fn new(dependencies: Dependencies, api: Arc<Api>) -> Arc<Self> {
        let (store, ledger, schema) = (LastProbe::default(), LastProbe::default(), Mutex::default());
        Arc::new(Self {
            dependencies,
            api,
            is_stopping: AtomicBool::new(false),
            is_drained: AtomicBool::new(false),
            store,
            ledger,
            is_ledger_empty: AtomicBool::new(false),
            is_read_only: AtomicBool::new(false),
            schema,
        })
    }

    /// Tells load balancers to send requests elsewhere, before the node stops.
    pub(crate) fn set_stopping(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Sets whether load balancers should send requests elsewhere, by hand.
    pub(crate) fn set_drained(&self, is_drained: bool) {
        self.is_drained.store(is_drained, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire) || self.is_drained.load(Ordering::Acquire)
    }

    /// Probes PostgreSQL and Redis until the drain starts. One that does not answer does not delay the other.
    pub(crate) async fn run(self: Arc<Self>, interval: Duration, probe_timeout: Duration, drain: Drain) {
        let Dependencies::Stores { store, ledger, .. } = &self.dependencies else { return };
        tokio::join!(
            run_every(interval, &drain, || self.probe_store(store, probe_timeout)),
            run_every(interval, &drain, || self.probe_ledger(ledger, probe_timeout)),
        );
    }

    async fn probe_store(&self, store: &Store, probe_timeout: Duration) {
        let probe = async { Ok::<_, StoreError>((store.schema_status().await?, store.is_read_only().await?)) };
        let outcome = match timeout(probe_timeout, probe).await {
            Ok(Ok((schema, is_read_only))) => {
                self.set_schema(schema);
                self.set_read_only(is_read_only);
                Ok(())
            }
            Ok(Err(error)) => Err(causes(&error).to_string()),
            // The pool tries again until its timeout and does not say why.
            Err(_elapsed) => match timeout(probe_timeout, store.connect_once()).await {
                Ok(Err(error)) => Err(causes(&error).to_string()),
                Ok(Ok(())) | Err(_) => Err(no_answer("PostgreSQL", probe_timeout)),
            },
        };
        self.store.set("PostgreSQL", outcome);
    }

    async fn probe_ledger(&self, ledger: &Ledger, probe_timeout: Duration) {
        let outcome = match timeout(probe_timeout, ledger.ping()).await {
            Ok(outcome) => outcome.map_err(|error| causes(&error).to_string()),
            Err(_elapsed) => Err(no_answer("Redis", probe_timeout)),
        };
        let is_alone = self.store.error().is_some() && !self.api.admission().can_serve_degraded();
        let is_empty = outcome.is_ok()
            && is_alone
            && matches!(timeout(probe_timeout, ledger.has_key_records()).await, Ok(Ok(false)));
        self.is_ledger_empty.store(is_empty, Ordering::Release);
        self.ledger.set("Redis", outcome);
    }

    /// Whether a store or home can answer requests.
    fn is_any_available(&self) -> bool {
        match &self.dependencies {
            Dependencies::Stores { .. } => {
                let is_empty = self.is_ledger_empty.load(Ordering::Acquire);
                // Also a PostgreSQL that is read-only.
                self.store.error().is_none() || self.ledger.error().is_none() && !is_empty
            }
            Dependencies::Home(home) => home.is_ready(),
        }
    }

    /// Whether requests get answers, from a store, from home or from memory.
    pub(crate) fn can_answer(&self) -> bool {
        let is_unprobed = matches!(self.dependencies, Dependencies::Stores { .. })
            && !(self.store.is_known() && self.ledger.is_known());
        is_unprobed || self.is_any_available() || self.api.admission().can_serve_degraded()
    }

    /// Whether this node decides with local limits.
    pub(crate) fn is_degraded(&self) -> bool {
        self.api.admission().is_degraded()
    }

    /// Whether PostgreSQL accepts writes.
    pub(crate) fn database_state(&self) -> ProbeState {
        match &self.dependencies {
            Dependencies::Home(_) => ProbeState::Elsewhere,
            Dependencies::Stores { .. } if !self.store.is_known() => ProbeState::NotProbed,
            Dependencies::Stores { .. } => {
                let works = self.store.error().is_none() && !self.is_read_only.load(Ordering::Acquire);
                if works { ProbeState::Works } else { ProbeState::Failed }
            }
        }
    }

    /// Whether Redis, or on a remote node home, counts requests.
    pub(crate) fn counting_state(&self) -> ProbeState {
        let works = match &self.dependencies {
            Dependencies::Home(home) => home.is_ready(),
            Dependencies::Stores { .. } if !self.ledger.is_known() => return ProbeState::NotProbed,
            Dependencies::Stores { guard, .. } => self.ledger.error().is_none() && !guard.status().is_mismatch(),
        };
        if works { ProbeState::Works } else { ProbeState::Failed }
    }

    fn set_read_only(&self, is_read_only: bool) {
        match (self.is_read_only.swap(is_read_only, Ordering::AcqRel), is_read_only) {
            (false, true) => tracing::error!(error = READ_ONLY, "PostgreSQL rejects writes"),
            (true, false) => tracing::info!("PostgreSQL accepts writes again"),
            (true, true) | (false, false) => {}
        }
    }

    fn set_schema(&self, schema: SchemaStatus) {
        let mut known = lock(&self.schema);
        if *known == schema {
            return;
        }
        if !schema.differing.is_empty() {
            tracing::error!(migrations = ?schema.differing, "schema differs from that of this version");
        }
        match schema.pending.len() {
            0 if schema.differing.is_empty() => tracing::info!("schema is current"),
            0 => {}
            count => tracing::error!(migrations = count, "schema is outdated; run `ipseity migrate`"),
        }
        *known = schema;
    }

    /// Number of migrations that PostgreSQL lacks.
    pub(crate) fn pending_migrations(&self) -> usize {
        lock(&self.schema).pending.len()
    }

    /// The name of each dependency, and its error.
    pub(crate) fn checks(&self) -> Vec<(&'static str, Option<String>)> {
        match &self.dependencies {
            Dependencies::Stores { guard, .. } => {
                let mismatch = Some(guard.status()).filter(|status| status.is_mismatch());
                let ledger = self.ledger.error().or(mismatch.map(|status| status.to_string()));
                let read_only = self.is_read_only.load(Ordering::Acquire).then(|| READ_ONLY.to_owned());
                vec![("store", self.store.error().or(read_only)), ("ledger", ledger)]
            }
            Dependencies::Home(home) => {
                vec![("home", (!home.is_ready()).then(|| CallError::NotSent.to_string()))]
            }
        }
    }

    /// Why the node should receive no requests.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let draining = self.is_draining().then(|| "the node is draining".to_owned());
        let schema = match self.pending_migrations() {
            0 => None,
            count => Some(format!("the schema lacks migrations: {count}. Run `ipseity migrate`.")),
        };
        let differing = lock(&self.schema).differing.clone();
        let foreign = (!differing.is_empty()).then(|| {
            format!("migrations {differing:?} differ from those of this version. Restore the database from a backup, or use the version that applied them.")
        });
        let mismatch = match &self.dependencies {
            // Other mismatches happen on all nodes while Redis is being replaced, and they answer from memory.
            Dependencies::Stores { guard, .. } if guard.status() == DeploymentStatus::ForeignRedis => {
                Some(guard.status().to_string())
            }
            Dependencies::Stores { .. } | Dependencies::Home(_) => None,
        };
        let is_unprobed = matches!(self.dependencies, Dependencies::Stores { .. })
            && !(self.store.is_known() && self.ledger.is_known());
        // A restored PostgreSQL may know keys otherwise than Redis does, and the schema may be outdated.
        let unprobed = is_unprobed.then(|| "the stores are not probed yet".to_owned());
        let unavailable = (!self.is_any_available() && !self.api.admission().can_serve_degraded())
            .then(|| "no server that knows keys is available, and this node knows none".to_owned());
        [draining, schema, foreign, mismatch, unprobed, unavailable].into_iter().flatten().collect()
    }
}

/// Reports it to Prometheus.
pub(crate) struct ReadinessCollector(pub(crate) Arc<Readiness>);

impl fmt::Debug for ReadinessCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadinessCollector")
    }
}

impl Collector for ReadinessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let is_ready = u64::from(self.0.reasons().is_empty());
        encode_gauge(&mut encoder, "ready", "Whether this node should receive requests, as in /ready", is_ready)?;
        let pending = self.0.pending_migrations() as u64;
        encode_gauge(&mut encoder, "pending_migrations", "Migrations that the schema in PostgreSQL lacks", pending)
    }
}

fn no_answer(server: &str, probe_timeout: Duration) -> String {
    format!("{server} did not answer within {} ms ([ops] probe_timeout_ms)", probe_timeout.as_millis())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
