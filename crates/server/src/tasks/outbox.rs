//! The outbox worker applies key changes that are still in the outbox, for example after a crash, to Redis. It runs on
//! every node. Several may apply the same change, which has no effect. It also checks that Redis belongs to this
//! deployment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ipseity_domain::causes;
use ipseity_edge::Drain;
use ipseity_keys::KeyService;
use ipseity_store::{OutboxEvent, OutboxListener, Store};
use prometheus_client::registry::Registry;

use crate::tasks::charge_gate::ChargeGate;
use crate::tasks::outcome_counter::{FAILED, OutcomeCounter, SUCCEEDED};

/// Limits a run. Rows that it does not remove stay for the next one.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct OutboxWorker {
    store: Store,
    key_service: Arc<KeyService>,
    charge_gate: Arc<ChargeGate>,
    interval: Duration,
    outcomes: OutcomeCounter,
}

impl OutboxWorker {
    pub(crate) fn register(
        registry: &mut Registry,
        store: Store,
        key_service: Arc<KeyService>,
        charge_gate: Arc<ChargeGate>,
        interval: Duration,
    ) -> Self {
        let help = "Runs that copy key changes to Redis, by outcome";
        let outcomes = OutcomeCounter::register(registry, "outbox_runs", help, [SUCCEEDED, FAILED]);
        Self { store, key_service, charge_gate, interval, outcomes }
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        tokio::select! {
            () = self.run_forever() => {}
            () = drain.started() => {}
        }
    }

    async fn run_forever(&self) {
        let (mut wake_stream, mut checked_at) = (None, None);
        loop {
            let result = tokio::time::timeout(RUN_TIMEOUT, self.run_once(&mut wake_stream, &mut checked_at)).await;
            match result.unwrap_or_else(|_elapsed| Err(anyhow!("timed out after {} s", RUN_TIMEOUT.as_secs()))) {
                Ok(outcome) => self.outcomes.inc(outcome),
                Err(error) => {
                    tracing::warn!(error = %causes(&*error), "outbox run failed");
                    self.outcomes.inc(FAILED);
                    (wake_stream, checked_at) = (None, None);
                    tokio::time::sleep(self.interval).await;
                }
            }
        }
    }

    /// Processes the outbox, then waits for a change or the end of the interval. Changes that could not be applied are
    /// tried again in the next run, and do not delay others.
    async fn run_once(
        &self,
        wake_stream: &mut Option<OutboxListener>,
        checked_at: &mut Option<Instant>,
    ) -> Result<&'static str> {
        // Also after a lost connection, because another PostgreSQL server may have been promoted.
        if checked_at.is_none_or(|checked_at| checked_at.elapsed() >= self.interval) {
            self.charge_gate.ensure_trusted().await?;
            *checked_at = Some(Instant::now());
        }
        let run = self.key_service.apply_outbox().await?;
        let wake_stream = match wake_stream {
            Some(wake_stream) => wake_stream,
            None => wake_stream.insert(self.store.outbox().listen().await?),
        };
        if wake_stream.wait(self.interval).await? == OutboxEvent::Deployment {
            *checked_at = None;
        }
        let is_complete = run.delayed.is_empty() && run.rejected.is_empty();
        Ok(if is_complete { SUCCEEDED } else { FAILED })
    }
}
