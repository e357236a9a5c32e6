//! Polls the geo files and reloads changed ones. Unlike inotify, polling also notices replaced symlinks, network file systems and container
//! volumes.

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::causes;
use ipseity_edge::Drain;
use ipseity_geo::AtlasReloader;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::tasks::outcome_counter::OutcomeCounter;
use crate::tasks::periodic::run_on_reload;

/// Limits the load of an accidental interval of 0.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);

const RELOADED: &str = "reloaded";
const REJECTED: &str = "rejected";

pub(crate) struct GeoReloadWorker {
    atlas_reloader: Arc<AtlasReloader>,
    /// `None`: only when a reload is requested.
    interval: Option<Duration>,
    reloads: OutcomeCounter,
}

impl GeoReloadWorker {
    pub(crate) fn register(
        registry: &mut Registry,
        atlas_reloader: Arc<AtlasReloader>,
        interval: Option<Duration>,
    ) -> Self {
        let reloads =
            OutcomeCounter::register(registry, "geo_reloads", "Changed geo files, by outcome", [RELOADED, REJECTED]);
        Self { atlas_reloader, interval: interval.map(|interval| interval.max(CHECK_INTERVAL_MIN)), reloads }
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(self, reload_requests: watch::Receiver<()>, drain: Drain) {
        run_on_reload(self.interval, reload_requests, &drain, || self.check_files()).await;
    }

    async fn check_files(&self) {
        let atlas_reloader = Arc::clone(&self.atlas_reloader);
        // Reading and validating 66 MB takes seconds of CPU time. The threads that serve requests must not wait for it.
        let Ok(report) = tokio::task::spawn_blocking(move || atlas_reloader.refresh()).await else {
            tracing::error!("geo reload panicked");
            return;
        };
        for file in &report.reloaded {
            tracing::info!(file = %file.display(), "geo database reloaded");
            self.reloads.inc(RELOADED);
        }
        for error in &report.rejected {
            tracing::warn!(error = %causes(error), "geo database rejected");
            self.reloads.inc(REJECTED);
        }
    }
}
