//! Logs: structured, on standard error, without addresses or keys.

use anyhow::{Context, Result};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat};

/// The crates that follow `[log] level`. Libraries are held to warnings: some of them log whole headers, key included, when asked for more.
const OWN: [&str; 8] = ["ipseity", "api", "portal", "geo", "ledger", "store", "edge", "domain"];

/// Libraries that put a peer's address into a warning, or warn of every odd packet that a stranger sends.
const SILENT: [&str; 2] = ["quinn_udp", "quinn_proto"];

/// Reads the level.
pub(crate) fn level(log: &Log) -> Result<LevelFilter> {
    let level = log.level.parse();
    level.with_context(|| format!("[log] level is {:?}; use error, warn, info, debug or trace", log.level))
}

/// Starts logging.
pub(crate) fn start(log: &Log) -> Result<()> {
    let level = level(log)?;
    let targets = Targets::new()
        .with_default(LevelFilter::WARN.min(level))
        .with_targets(SILENT.map(|name| (name, LevelFilter::OFF)))
        .with_targets(OWN.map(|name| (name, level)));
    let layer = match log.format {
        LogFormat::Json => fmt::layer().json().with_writer(std::io::stderr).boxed(),
        LogFormat::Text => fmt::layer().with_ansi(false).with_writer(std::io::stderr).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(targets)).init();
    // What a panic says may hold anything, an address included: only its place is logged.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panicked");
    }));
    Ok(())
}
