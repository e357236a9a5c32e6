//! Watching the geo files by polling, which sees a turned link, a network file system and a container's volume alike.

use std::sync::Arc;
use std::time::Duration;

use edge::Drain;
use geo::Shelf;
use prometheus_client::registry::Registry;
use tokio::time::MissedTickBehavior;

use crate::outcome::Outcomes;

/// More often than this would be all that a thread does.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

const SWAPPED: &str = "swapped";
const REFUSED: &str = "refused";

pub(crate) struct Watch {
    shelf: Arc<Shelf>,
    interval: Duration,
    reloads: Outcomes,
}

impl Watch {
    pub(crate) fn register(registry: &mut Registry, shelf: Arc<Shelf>, interval: Duration) -> Self {
        let reloads = Outcomes::register(
            registry,
            "geo_reloads",
            "Geo files that changed, by what became of them",
            [SWAPPED, REFUSED],
        );
        Self { shelf, interval: interval.max(INTERVAL_MIN), reloads }
    }

    /// Watches until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.look().await,
                () = drain.started() => return,
            }
        }
    }

    async fn look(&self) {
        let shelf = Arc::clone(&self.shelf);
        // Reading and checking 66 MB takes seconds of a processor; the threads that answer must not wait for it.
        let Ok(news) = tokio::task::spawn_blocking(move || shelf.refresh()).await else {
            tracing::error!("looking at the geo files panicked");
            return;
        };
        for file in &news.swapped {
            tracing::info!(file = %file.display(), "a geo file was swapped in");
            self.reloads.count(SWAPPED);
        }
        for reason in &news.refused {
            tracing::warn!(reason = reason as &dyn std::error::Error, "a geo file was refused; the old edition stays");
            self.reloads.count(REFUSED);
        }
    }
}
