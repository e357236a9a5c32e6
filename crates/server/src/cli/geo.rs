//! `ipseity geo …`

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use ipseity_geo::{Atlas, DatabaseCoverage, Edition};
use serde_json::{Value, json};

use crate::cli::output;
use crate::config::{Config, GeoSourceConfig};
use crate::geo::update::{self, GeoUpdater, UpdateOutcome};
use crate::node::atlas_sources;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub(super) enum GeoCommand {
    /// Show the databases in `[geo] files` with edition, age, size and attribution.
    Status,
    /// Download new editions from `[[geo.sources]]`.
    ///
    /// Running nodes load them automatically.
    Update,
}

impl GeoCommand {
    pub(super) async fn run(self, config: &Config, json: bool) -> Result<()> {
        match self {
            Self::Status => print_status(config, json),
            Self::Update => update_databases(config, json).await,
        }
    }
}

fn print_status(config: &Config, as_json: bool) -> Result<()> {
    let atlas = Atlas::open(&atlas_sources(config)).context("failed to load the files of [geo]")?;
    let coverages = atlas.database_coverage().context("failed to load the files of [geo]")?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    for source in config.geo.sources_of_missing_files() {
        let (file, host) = (source.file.display(), source.host());
        let reason = update::last_error(source).map_or_else(String::new, |error| format!(" Last error: {error}."));
        output::print_warning(&format!("{file} does not exist yet. Its source is {host}.{reason}"))?;
    }
    let files = atlas.files().map(|file| file.display().to_string());
    let rows: Vec<(String, &Edition, DatabaseCoverage)> = files
        .zip(atlas.editions())
        .zip(coverages)
        .map(|((file, edition), coverage)| (file, edition, coverage))
        .collect();
    if as_json {
        return rows.iter().try_for_each(|(file, edition, coverage)| {
            output::print_json(&json!({
                "file": file,
                "type": edition.database_type,
                "kind": edition.kind.name(),
                "built_at": edition.built_at(),
                "age_days": edition.age_days(now_s),
                "networks": coverage.networks,
                "ipv4_percent": coverage.ipv4_percent(),
                "attribution": edition.attribution().map(|attribution| attribution.text),
            }))
        });
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

async fn update_databases(config: &Config, json: bool) -> Result<()> {
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
                let (database_type, built_at) = (&edition.database_type, edition.built_at());
                let text = format!("{file}: updated to {database_type} of {built_at}.");
                let mut value = update_json(source, "updated");
                (value["type"], value["built_at"]) = (json!(database_type), json!(built_at));
                output::print_result(json, &value, &text)?;
                continue;
            }
            Ok(UpdateOutcome::Unchanged) => {
                let text = format!("{file}: already up to date.");
                output::print_result(json, &update_json(source, "unchanged"), &text)?;
                continue;
            }
            Ok(UpdateOutcome::RetryAfter(wait)) => format!("the server asks to retry in {} s", wait.as_secs()),
            Err(error) => format!("{error:#}"),
        };
        failed += 1;
        if json {
            let mut value = update_json(source, "failed");
            value["error"] = json!(reason);
            output::print_json(&value)?;
        }
        output::print_warning(&format!("failed to update {file}: {reason}. The current file stays in use."))?;
    }
    if failed > 0 {
        bail!("failed to update {failed} of {} sources", sources.len());
    }
    Ok(())
}

/// The outcome of an update: `updated`, `unchanged` or `failed`.
fn update_json(source: &GeoSourceConfig, outcome: &str) -> Value {
    json!({ "file": source.file.display().to_string(), "outcome": outcome })
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
