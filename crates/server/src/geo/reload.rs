//! Watching the geo files by polling, which sees a turned link, a network file system and a container's volume alike.

use std::sync::Arc;
use std::time::Duration;

use ipseity_edge::Drain;
use ipseity_geo::AtlasReloader;
use prometheus_client::registry::Registry;
use tokio::time::MissedTickBehavior;

use crate::tasks::outcome_counter::OutcomeCounter;

/// More often than this would be all that a thread does.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);

const RELOADED: &str = "reloaded";
const REJECTED: &str = "rejected";

pub(crate) struct GeoReloadWorker {
    atlas_reloader: Arc<AtlasReloader>,
    interval: Duration,
    reloads: OutcomeCounter,
}

impl GeoReloadWorker {
    pub(crate) fn register(registry: &mut Registry, atlas_reloader: Arc<AtlasReloader>, interval: Duration) -> Self {
        let reloads =
            OutcomeCounter::register(registry, "geo_reloads", "Changed geo files, by outcome", [RELOADED, REJECTED]);
        Self { atlas_reloader, interval: interval.max(CHECK_INTERVAL_MIN), reloads }
    }

    /// Watches until the drain starts.
    pub(crate) async fn run(self, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.check_files().await,
                () = drain.started() => return,
            }
        }
    }

    async fn check_files(&self) {
        let atlas_reloader = Arc::clone(&self.atlas_reloader);
        // Reading and checking 66 MB takes seconds of a processor; the threads that answer must not wait for it.
        let Ok(report) = tokio::task::spawn_blocking(move || atlas_reloader.refresh()).await else {
            tracing::error!("looking at the geo files panicked");
            return;
        };
        for file in &report.swapped {
            tracing::info!(file = %file.display(), "a geo file was swapped in");
            self.reloads.inc(RELOADED);
        }
        for error in &report.refused {
            tracing::warn!(reason = error as &dyn std::error::Error, "a geo file was refused; the old edition stays");
            self.reloads.inc(REJECTED);
        }
    }
}
