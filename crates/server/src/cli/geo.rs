//! `ipseity geo …`

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use ipseity_geo::{Atlas, DatabaseCoverage, Edition};
use serde_json::json;

use crate::cli::output;
use crate::config::Config;
use crate::geo::update::{GeoUpdater, UpdateOutcome};
use crate::node::atlas_sources;

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
            Self::Status { json } => print_status(config, json),
            Self::Update => update_databases(config).await,
        }
    }
}

fn print_status(config: &Config, as_json: bool) -> Result<()> {
    let atlas = Atlas::open(&atlas_sources(config)).context("[geo] names a file that cannot be used")?;
    let coverages = atlas.database_coverage().context("[geo] names a file that cannot be used")?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let files = config.geo.files.iter().map(|file| file.display().to_string());
    let rows: Vec<(String, &Edition, DatabaseCoverage)> = files
        .zip(atlas.editions())
        .zip(coverages)
        .map(|((file, edition), coverage)| (file, edition, coverage))
        .collect();
    if as_json {
        let databases = rows.iter().map(|(file, edition, coverage)| {
            json!({
                "file": file,
                "type": edition.database_type,
                "kind": edition.kind.name(),
                "built_at": edition.built_at(),
                "age_days": edition.age_days(now_s),
                "networks": coverage.networks,
                "ipv4_percent": coverage.ipv4_percent(),
                "attribution": edition.attribution().map(|attribution| attribution.text),
            })
        });
        return output::print_json(&databases.collect());
    }
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(file, edition, coverage)| {
            [
                file,
                edition.database_type.clone(),
                edition.built_at(),
                edition.age_days(now_s).to_string(),
                coverage.networks.to_string(),
                format!("{:.1} %", coverage.ipv4_percent()),
                edition.attribution().map_or("unknown maker", |attribution| attribution.text).to_owned(),
            ]
        })
        .collect();
    output::print_table(["FILE", "TYPE", "BUILT", "AGE (DAYS)", "NETWORKS", "OF IPV4", "ATTRIBUTION"], &rows)
}

async fn update_databases(config: &Config) -> Result<()> {
    let sources = &config.geo.sources;
    if sources.is_empty() {
        bail!("there is nothing to fetch: name a source in the configuration file, under [[geo.sources]]");
    }
    let updater = GeoUpdater::open(&config.geo)?;
    let mut failed = 0;
    for source in sources {
        let file = source.file.display();
        let mut last_printed = Instant::now();
        let mut progress = |bytes: u64, total: Option<u64>| {
            if last_printed.elapsed() >= PROGRESS_INTERVAL {
                last_printed = Instant::now();
                print_progress(&file.to_string(), bytes, total);
            }
        };
        let reason = match updater.update_source(source, &mut progress).await {
            Ok(UpdateOutcome::Updated(edition)) => {
                output::print_line(&format!("{file}: now {} of {}.", edition.database_type, edition.built_at()))?;
                continue;
            }
            Ok(UpdateOutcome::Unchanged) => {
                output::print_line(&format!("{file}: already the newest."))?;
                continue;
            }
            Ok(UpdateOutcome::RetryAfter(wait)) => format!("the server asks to come back in {} s", wait.as_secs()),
            Err(error) => format!("{error:#}"),
        };
        failed += 1;
        output::print_warning(&format!("{file} stays as it is: {reason}."))?;
    }
    if failed > 0 {
        bail!("{failed} of {} sources could not be fetched", sources.len());
    }
    Ok(())
}

fn print_progress(file: &str, bytes: u64, total: Option<u64>) {
    let mut stderr = std::io::stderr().lock();
    let line_end = if stderr.is_terminal() { "\x1b[K\r" } else { "\n" };
    // On a terminal, whatever is written next goes over this line.
    let megabytes = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
    // Progress that cannot be shown is no reason to stop.
    let _ = match total.filter(|&total| total > 0) {
        Some(total) => {
            write!(
                stderr,
                "{file}: {} of {} MB ({} %){line_end}",
                megabytes(bytes),
                megabytes(total),
                bytes * 100 / total
            )
        }
        None => write!(stderr, "{file}: {} MB{line_end}", megabytes(bytes)),
    };
}
