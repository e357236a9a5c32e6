//! The loop of periodic tasks.

use std::time::Duration;

use ipseity_edge::Drain;
use tokio::time::{MissedTickBehavior, interval};

/// Runs a task now and then every `period` until the drain starts. A run is never cut short; a slow one delays the next.
pub(crate) async fn run_every<T: Future>(period: Duration, drain: &Drain, mut task: impl FnMut() -> T) {
    let mut tick = interval(period);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => drop(task().await),
            () = drain.started() => return,
        }
    }
}
