//! The relay: brings to the counter store what a crash left in the outbox, and to the durable store the pauses that lack their row. It runs
//! on every node; whoever comes first does the work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use edge::Drain;
use ledger::Ledger;
use prometheus_client::registry::Registry;
use store::{Store, Wake};

use crate::outcome::Outcomes;
use crate::publish::settle;

/// Outbox rows that one node takes at a time.
const BATCH_MAX: i64 = 100;
/// The longest that a round may take; a claim that is dropped then comes back.
const ROUND_MAX: Duration = Duration::from_secs(60);

const DONE: &str = "done";
const FAILED: &str = "failed";

pub(crate) fn register(registry: &mut Registry) -> Outcomes {
    let help = "Rounds that bring changes and pauses from one store to the other, by what became of them";
    Outcomes::register(registry, "relays", help, [DONE, FAILED])
}

pub(crate) struct Relay {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) interval: Duration,
    pub(crate) outcomes: Outcomes,
}

impl Relay {
    /// Relays until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        tokio::select! {
            () = self.relay() => {}
            () = drain.started() => {}
        }
    }

    async fn relay(&self) {
        let mut wake = None;
        let mut swept = None;
        loop {
            let round = tokio::time::timeout(ROUND_MAX, self.round(&mut wake, &mut swept)).await;
            if let Err(error) = round.unwrap_or_else(|_elapsed| Err(anyhow!("a store did not answer"))) {
                tracing::warn!(error = &*error, "the relay could not do its round");
                self.outcomes.count(FAILED);
                wake = None;
                tokio::time::sleep(self.interval).await;
            } else {
                self.outcomes.count(DONE);
            }
        }
    }

    /// Waits until something has changed or the interval is over, and does what there is to do.
    async fn round(&self, wake: &mut Option<Wake>, swept: &mut Option<Instant>) -> Result<()> {
        self.drain_outbox().await?;
        if swept.is_none_or(|swept| swept.elapsed() >= self.interval) {
            *swept = Some(Instant::now());
            self.sweep().await?;
        }
        let wake = match wake {
            Some(wake) => wake,
            None => wake.insert(self.store.listen().await?),
        };
        Ok(wake.wait(self.interval).await?)
    }

    pub(crate) async fn drain_outbox(&self) -> Result<()> {
        while let Some(mut claim) = self.store.claim_outbox(BATCH_MAX).await? {
            for change in claim.changes().await? {
                self.ledger.apply(&change).await?;
            }
            claim.done().await?;
        }
        Ok(())
    }

    async fn sweep(&self) -> Result<()> {
        settle(&self.store, &self.ledger, &self.ledger.sweep(self.interval).await?).await
    }
}
