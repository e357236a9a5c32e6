//! The outbox worker applies key changes that are still in the outbox, for example after a crash, to Redis. It also copies pauses that only Redis
//! has to PostgreSQL. It runs on every node; rows are claimed, so that only one node processes each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ipseity_domain::KeyPause;
use ipseity_edge::Drain;
use ipseity_ledger::Ledger;
use ipseity_store::{Store, WakeListener};
use prometheus_client::registry::Registry;

use crate::tasks::outcome_counter::{FAILED, OutcomeCounter, SUCCEEDED};

/// Outbox rows that a node claims at a time.
const BATCH_ROWS_MAX: i64 = 100;
/// Limits a run. Rows of a dropped claim become available again.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct OutboxWorker {
    pub(crate) store: Store,
    ledger: Arc<Ledger>,
    interval: Duration,
    outcomes: OutcomeCounter,
}

impl OutboxWorker {
    pub(crate) fn register(registry: &mut Registry, store: Store, ledger: Arc<Ledger>, interval: Duration) -> Self {
        let help = "Runs that copy key changes to Redis and pauses to PostgreSQL, by outcome";
        let outcomes = OutcomeCounter::register(registry, "outbox_runs", help, [SUCCEEDED, FAILED]);
        Self { store, ledger, interval, outcomes }
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        tokio::select! {
            () = self.run_forever() => {}
            () = drain.started() => {}
        }
    }

    async fn run_forever(&self) {
        let mut wake_stream = None;
        let mut last_sweep = None;
        loop {
            let result = tokio::time::timeout(RUN_TIMEOUT, self.run_once(&mut wake_stream, &mut last_sweep)).await;
            if let Err(error) =
                result.unwrap_or_else(|_elapsed| Err(anyhow!("timed out after {} s", RUN_TIMEOUT.as_secs())))
            {
                tracing::warn!(error = &*error, "outbox run failed");
                self.outcomes.inc(FAILED);
                wake_stream = None;
                tokio::time::sleep(self.interval).await;
            } else {
                self.outcomes.inc(SUCCEEDED);
            }
        }
    }

    /// Processes the outbox and unrecorded pauses, then waits for a change or the end of the interval.
    async fn run_once(&self, wake_stream: &mut Option<WakeListener>, last_sweep: &mut Option<Instant>) -> Result<()> {
        self.apply_outbox().await?;
        if last_sweep.is_none_or(|last_sweep| last_sweep.elapsed() >= self.interval) {
            *last_sweep = Some(Instant::now());
            self.record_missing_pauses().await?;
        }
        let wake_stream = match wake_stream {
            Some(wake_stream) => wake_stream,
            None => wake_stream.insert(self.store.outbox().listen().await?),
        };
        Ok(wake_stream.wait(self.interval).await?)
    }

    pub(crate) async fn apply_outbox(&self) -> Result<()> {
        while let Some(mut claim) = self.store.outbox().claim(BATCH_ROWS_MAX).await? {
            for change in claim.changes().await? {
                self.ledger.apply_change(&change).await?;
            }
            claim.ack().await?;
        }
        Ok(())
    }

    async fn record_missing_pauses(&self) -> Result<()> {
        record_pauses(&self.store, &self.ledger, &self.ledger.claim_unrecorded_pauses(self.interval).await?).await
    }
}

/// Copies pauses that only Redis has to PostgreSQL.
pub(crate) async fn record_pauses(store: &Store, ledger: &Ledger, pauses: &[KeyPause]) -> Result<()> {
    for pause in pauses {
        store.keys().record_pause(pause).await?;
        ledger.mark_pause_recorded(pause).await?;
    }
    Ok(())
}
