//! Logs: structured, on standard error, without addresses or keys. How much is logged can be changed for a while.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::RequestId;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::{Log, LogFormat};
use crate::otlp::Sender;

/// The crates that follow `[log] level`. Libraries are held to warnings: some of them log whole headers, key included, when asked for more.
const OWN: [&str; 8] = ["ipseity", "api", "portal", "geo", "ledger", "store", "edge", "domain"];

/// Libraries that put a peer's address into a warning, or warn of every odd packet that a stranger sends.
const SILENT: [&str; 2] = ["quinn_udp", "quinn_proto"];

/// The lines that `[log] access` is about.
const ACCESS: &str = "access";

/// How long a change holds if nobody says.
const CHANGE_S: u64 = 600;

/// Reads the level.
pub(crate) fn level(log: &Log) -> Result<LevelFilter> {
    parse(&log.level).with_context(|| format!("[log] level is {:?}", log.level))
}

fn parse(level: &str) -> Result<LevelFilter> {
    level.parse().ok().context("use error, warn, info, debug or trace")
}

/// Starts logging, to a collector too if there is one.
pub(crate) fn start(log: &Log, sender: Option<&Sender>) -> Result<Arc<Levels>> {
    let ordinary = Amount { level: level(log)?, access: log.access };
    let (filter, handle) = reload::Layer::new(ordinary.targets());
    let layer = match log.format {
        LogFormat::Json => fmt::layer().json().with_writer(|| Lines(LogFormat::Json)).boxed(),
        LogFormat::Text => fmt::layer().with_ansi(false).with_writer(|| Lines(LogFormat::Text)).boxed(),
    };
    let (mut layers, mut handles) = (vec![layer.with_filter(filter).boxed()], vec![handle]);
    if let Some(sender) = sender {
        let (filter, handle) = reload::Layer::new(ordinary.targets());
        layers.extend([sender.spans(), sender.lines(filter)]);
        handles.push(handle);
    }
    tracing_subscriber::registry().with(layers).init();
    // What a panic says may hold anything, an address included: only its place is logged.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panicked");
    }));
    Ok(Arc::new(Levels { handles, ordinary, change: Mutex::default(), change_s_max: log.change_s_max }))
}

/// Standard error, line by line; one that is written while a request is answered begins with the request's id.
struct Lines(LogFormat);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        match (RequestId::current(), self.0, line) {
            (Some(id), LogFormat::Json, [b'{', rest @ ..]) => {
                let begun = format!("{{\"request\":\"{}\",", id.as_str());
                stderr.write_all(&[begun.as_bytes(), rest].concat())?;
            }
            (Some(id), LogFormat::Text, _) => stderr.write_all(&[id.as_str().as_bytes(), b" ", line].concat())?,
            (Some(_) | None, LogFormat::Json | LogFormat::Text, _) => stderr.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// How much is logged.
#[derive(Clone, Copy)]
struct Amount {
    level: LevelFilter,
    access: bool,
}

impl Amount {
    fn targets(self) -> Targets {
        Targets::new()
            .with_default(LevelFilter::WARN.min(self.level))
            .with_targets(SILENT.map(|name| (name, LevelFilter::OFF)))
            .with_targets(OWN.map(|name| (name, self.level)))
            .with_target(ACCESS, if self.access { LevelFilter::INFO } else { LevelFilter::OFF })
    }
}

/// How much is logged now, and what is logged when the change is over.
pub(crate) struct Levels {
    /// Of standard error and, if there is one, of the collector.
    handles: Vec<reload::Handle<Targets, Registry>>,
    ordinary: Amount,
    change: Mutex<Option<Change>>,
    change_s_max: u64,
}

#[derive(Clone, Copy)]
struct Change {
    amount: Amount,
    until: Instant,
}

/// How much is logged, as it is told.
pub(crate) struct Now {
    pub(crate) level: LevelFilter,
    pub(crate) access: bool,
    /// Seconds that the change still holds; `None` when nothing is changed.
    pub(crate) for_s: Option<u64>,
}

impl Levels {
    pub(crate) fn now(&self) -> Now {
        let change = *self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let Amount { level, access } = change.map_or(self.ordinary, |change| change.amount);
        let left = change.map(|change| change.until.saturating_duration_since(Instant::now()).as_secs());
        Now { level, access, for_s: left }
    }

    /// Changes what is logged, for so many seconds; 0 ends a change at once.
    pub(crate) fn set(self: &Arc<Self>, level: Option<&str>, access: Option<bool>, for_s: Option<u64>) -> Result<()> {
        let for_s = for_s.unwrap_or(CHANGE_S.min(self.change_s_max));
        let longest = self.change_s_max;
        ensure!(for_s <= longest, "for_s is {for_s}; a change may hold for {longest} s ([log] change_s_max)");
        let level = level.map(parse).transpose().context("the level cannot be read")?.unwrap_or(self.ordinary.level);
        let amount = Amount { level, access: access.unwrap_or(self.ordinary.access) };
        let change = Change { amount, until: Instant::now() + Duration::from_secs(for_s) };
        tracing::warn!(level = %amount.level, access = amount.access, for_s, "what is logged is changed for a while");
        self.apply(Some(change))?;
        let levels = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(change.until.into()).await;
            levels.end(change.until);
        });
        Ok(())
    }

    /// Ends a change, unless another one came after it.
    fn end(&self, until: Instant) {
        let is_last =
            self.change.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|last| last.until == until);
        if is_last && self.apply(None).is_ok() {
            tracing::warn!(level = %self.ordinary.level, "the usual is logged again");
        }
    }

    fn apply(&self, change: Option<Change>) -> Result<()> {
        let amount = change.map_or(self.ordinary, |change| change.amount);
        for handle in &self.handles {
            handle.reload(amount.targets()).context("the log cannot be changed")?;
        }
        *self.change.lock().unwrap_or_else(PoisonError::into_inner) = change;
        Ok(())
    }
}
