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

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub(super) enum GeoCommand {
    /// Show the databases in `[geo] files` with edition, age, size and attribution.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Download new editions from `[[geo.sources]]`.
    ///
    /// Running nodes load them automatically.
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
    let atlas = Atlas::open(&atlas_sources(config)).context("failed to load the files of [geo]")?;
    let coverages = atlas.database_coverage().context("failed to load the files of [geo]")?;
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
                format!("{:.1}%", coverage.ipv4_percent()),
                edition.attribution().map_or("unknown", |attribution| attribution.text).to_owned(),
            ]
        })
        .collect();
    output::print_table(["FILE", "TYPE", "BUILT", "AGE (DAYS)", "NETWORKS", "IPV4 COVERAGE", "ATTRIBUTION"], &rows)
}

async fn update_databases(config: &Config) -> Result<()> {
    let sources = &config.geo.sources;
    if sources.is_empty() {
        bail!("no sources are configured. Add one under [[geo.sources]] in the configuration file.");
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
                output::print_line(&format!(
                    "{file}: updated to {} of {}.",
                    edition.database_type,
                    edition.built_at()
                ))?;
                continue;
            }
            Ok(UpdateOutcome::Unchanged) => {
                output::print_line(&format!("{file}: already up to date."))?;
                continue;
            }
            Ok(UpdateOutcome::RetryAfter(wait)) => format!("the server asks to retry in {} s", wait.as_secs()),
            Err(error) => format!("{error:#}"),
        };
        failed += 1;
        output::print_warning(&format!("failed to update {file}: {reason}. The current file stays in use."))?;
    }
    if failed > 0 {
        bail!("failed to update {failed} of {} sources", sources.len());
    }
    Ok(())
}

fn print_progress(file: &str, bytes: u64, total: Option<u64>) {
    let mut stderr = std::io::stderr().lock();
    let line_end = if stderr.is_terminal() { "\x1b[K\r" } else { "\n" };
    // On a terminal, the next output overwrites this line.
    let megabytes = |bytes: u64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
    // A failure to show progress does not matter.
    let _ = match total.filter(|&total| total > 0) {
        Some(total) => {
            write!(
                stderr,
                "{file}: {} of {} MB ({}%){line_end}",
                megabytes(bytes),
                megabytes(total),
                bytes * 100 / total
            )
        }
        None => write!(stderr, "{file}: {} MB{line_end}", megabytes(bytes)),
    };
}
