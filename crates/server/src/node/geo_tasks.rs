//! Starts the tasks that reload and download geo databases.

use std::time::Duration;

use anyhow::Result;
use ipseity_edge::Drain;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::geo::reload::GeoReloadWorker;
use crate::geo::update::GeoUpdater;
use crate::node::signals::Reloader;

/// Starts the geo tasks that are enabled.
pub(super) fn spawn_geo_tasks(
    config: &Config,
    geo_reload: GeoReloadWorker,
    reloader: &Reloader,
    tasks: &mut JoinSet<()>,
    drain: &Drain,
) -> Result<()> {
    let settings = &config.geo;
    tasks.spawn(geo_reload.run(reloader.subscribe(), drain.clone()));
    let interval = Duration::from_secs(settings.update_interval_h.saturating_mul(3600));
    let missing: Vec<_> = settings.sources_of_missing_files().cloned().collect();
    let (sources, interval) = match interval.is_zero() {
        true => (missing, None),
        false => (settings.sources.clone(), Some(interval)),
    };
    if !sources.is_empty() {
        let request_reload = reloader.requester();
        tasks.spawn(GeoUpdater::open(settings)?.run(sources, interval, request_reload, drain.clone()));
    }
    Ok(())
}
