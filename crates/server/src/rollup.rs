//! Rolling counts up to the durable store, every few seconds and once more at the end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{Taken, Tally};
use edge::Drain;
use ledger::Ledger;
use prometheus_client::registry::Registry;
use store::Store;

use crate::outcome::Outcomes;

/// Rows in one statement: a million keys are rolled up in steps that PostgreSQL takes in milliseconds.
const ROWS_MAX: usize = 5_000;

const DONE: &str = "done";
const FAILED: &str = "failed";

pub(crate) fn register(registry: &mut Registry) -> Outcomes {
    let help = "Roll-ups of counts to the durable store, by what became of them";
    Outcomes::register(registry, "rollups", help, [DONE, FAILED])
}

pub(crate) struct Rollup {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) interval: Duration,
    pub(crate) outcomes: Outcomes,
}

impl Rollup {
    /// Rolls up until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.roll_up().await,
                () = drain.started() => return,
            }
        }
    }

    /// Rolls up what waits; what fails waits on.
    pub(crate) async fn roll_up(&self) {
        let mut taken = self.tally.take();
        if let Err(error) = self.flush(&mut taken).await {
            tracing::warn!(error = &*error, "counts could not be rolled up yet");
            self.tally.put_back(taken);
            self.outcomes.count(FAILED);
        } else {
            self.outcomes.count(DONE);
        }
    }

    async fn flush(&self, taken: &mut Taken) -> Result<()> {
        for rows in taken.refusals().chunks(ROWS_MAX) {
            self.store.add_refusals(rows).await?;
            taken.forget_refusals(rows);
        }
        for (used, refused) in taken.demo() {
            self.store.roll_up_demo(used, refused).await?;
            taken.forget_demo(used.day);
        }
        self.roll_up_rows(taken).await?;
        let unheard = taken.unheard();
        if !unheard.is_empty() {
            let told = self.ledger.used(&unheard).await?;
            taken.hear(unheard.into_iter().zip(told).filter_map(|(key, used)| Some((key, used?))));
            self.roll_up_rows(taken).await?;
        }
        for key in taken.yesterdays() {
            self.ledger.forget_yesterday(key).await?;
        }
        Ok(())
    }

    async fn roll_up_rows(&self, taken: &Taken) -> Result<()> {
        for rows in taken.rolled_up().chunks(ROWS_MAX) {
            self.store.roll_up(rows).await?;
        }
        Ok(())
    }
}
