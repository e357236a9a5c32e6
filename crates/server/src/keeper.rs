//! Keeping no more than the settings say: what has expired or is past its time is deleted, by any node, every few minutes.

use std::time::Duration;

use edge::Drain;
use prometheus_client::registry::Registry;
use store::{Keep, Store, StoreError};
use tokio::time::MissedTickBehavior;

use crate::outcome::Outcomes;

/// More often than this would be all that PostgreSQL does.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

const DONE: &str = "done";
const FAILED: &str = "failed";

pub(crate) struct Keeper {
    pub(crate) store: Store,
    pub(crate) keep: Keep,
    pub(crate) session_idle_max: Duration,
    pub(crate) interval: Duration,
    pub(crate) outcomes: Outcomes,
}

pub(crate) fn register(registry: &mut Registry) -> Outcomes {
    let help = "Rounds that delete what is past its time, by what became of them";
    Outcomes::register(registry, "cleanings", help, [DONE, FAILED])
}

impl Keeper {
    /// Deletes until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval.max(INTERVAL_MIN));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.round().await,
                () = drain.started() => return,
            }
        }
    }

    async fn round(&self) {
        match self.clean().await {
            Ok(()) => self.outcomes.count(DONE),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "what is past its time could not be deleted yet"
                );
                self.outcomes.count(FAILED);
            }
        }
    }

    async fn clean(&self) -> Result<(), StoreError> {
        self.store.forget_expired(self.session_idle_max).await?;
        self.store.forget_past(self.keep).await
    }
}
