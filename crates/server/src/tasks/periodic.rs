//! The loops of periodic tasks.

use std::future::pending;
use std::time::Duration;

use ipseity_edge::Drain;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

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

/// Runs a task at each request to reload, and every `period` if there is one, until the drain starts.
pub(crate) async fn run_on_reload<T: Future>(
    period: Option<Duration>,
    mut reload_requests: watch::Receiver<()>,
    drain: &Drain,
    mut task: impl FnMut() -> T,
) {
    loop {
        let next_period = async {
            match period {
                Some(period) => sleep(period).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = next_period => {}
            Ok(()) = reload_requests.changed() => {}
            () = drain.started() => return,
        }
        task().await;
    }
}
