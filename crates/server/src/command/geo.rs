//! `ipseity geo …`

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use geo::{Atlas, Edition, Extent};
use serde_json::json;

use super::show;
use crate::assemble::geo_sources;
use crate::config::Config;
use crate::update::{Outcome, Updater};

/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub(super) enum GeoCommand {
    /// Show the databases of `[geo] files`: their editions, ages, sizes, and whom they are owed to.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Fetch what is new from `[[geo.sources]]`; running nodes swap it in by themselves.
    Update,
}

impl GeoCommand {
    pub(super) async fn run(self, config: &Config) -> Result<()> {
        match self {
            Self::Status { json } => status(config, json),
            Self::Update => update(config).await,
        }
    }
}

fn status(config: &Config, as_json: bool) -> Result<()> {
    let atlas = Atlas::open(&geo_sources(config)).context("[geo] names a file that cannot be used")?;
    let extents = atlas.extents().context("[geo] names a file that cannot be used")?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let files = config.geo.files.iter().map(|file| file.display().to_string());
    let rows: Vec<(String, &Edition, Extent)> =
        files.zip(atlas.editions()).zip(extents).map(|((file, edition), extent)| (file, edition, extent)).collect();
    if as_json {
        let databases = rows.iter().map(|(file, edition, extent)| {
            json!({
                "file": file,
                "type": edition.database_type,
                "kind": edition.kind.name(),
                "built_at": edition.built_at(),
                "age_days": edition.age_days(now_s),
                "networks": extent.networks,
                "ipv4_percent": extent.ipv4_percent(),
                "attribution": edition.attribution().map(|attribution| attribution.text),
            })
        });
        return show::json(&databases.collect());
    }
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(file, edition, extent)| {
            [
                file,
                edition.database_type.clone(),
                edition.built_at(),
                edition.age_days(now_s).to_string(),
                extent.networks.to_string(),
                format!("{:.1} %", extent.ipv4_percent()),
                edition.attribution().map_or("unknown maker", |attribution| attribution.text).to_owned(),
            ]
        })
        .collect();
    show::table(["FILE", "TYPE", "BUILT", "AGE (DAYS)", "NETWORKS", "OF IPV4", "ATTRIBUTION"], &rows)
}

async fn update(config: &Config) -> Result<()> {
    let sources = &config.geo.sources;
    if sources.is_empty() {
        bail!("there is nothing to fetch: name a source in the configuration file, under [[geo.sources]]");
    }
    let updater = Updater::open(&config.geo)?;
    let mut failed = 0;
    for source in sources {
        let file = source.file.display();
        let mut last = Instant::now();
        let mut progress = |bytes: u64, of: Option<u64>| {
            if last.elapsed() >= PROGRESS_INTERVAL {
                last = Instant::now();
                show_progress(&file.to_string(), bytes, of);
            }
        };
        let reason = match updater.update(source, &mut progress).await {
            Ok(Outcome::Updated(edition)) => {
                show::line(&format!("{file}: now {} of {}.", edition.database_type, edition.built_at()))?;
                continue;
            }
            Ok(Outcome::Unchanged) => {
                show::line(&format!("{file}: already the newest."))?;
                continue;
            }
            Ok(Outcome::Later(wait)) => format!("the server asks to come back in {} s", wait.as_secs()),
            Err(error) => format!("{error:#}"),
        };
        failed += 1;
        show::warning(&format!("{file} stays as it is: {reason}."))?;
    }
    if failed > 0 {
        bail!("{failed} of {} sources could not be fetched", sources.len());
    }
    Ok(())
}

fn show_progress(file: &str, bytes: u64, of: Option<u64>) {
    let mut stderr = std::io::stderr().lock();
    let end = if stderr.is_terminal() { "\x1b[K\r" } else { "\n" };
    // On a terminal, whatever is written next goes over this line.
    let megabytes = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
    // Progress that cannot be shown is no reason to stop.
    let _ = match of.filter(|&of| of > 0) {
        Some(of) => {
            write!(stderr, "{file}: {} of {} MB ({} %){end}", megabytes(bytes), megabytes(of), bytes * 100 / of)
        }
        None => write!(stderr, "{file}: {} MB{end}", megabytes(bytes)),
    };
}
