//! Structured logs on standard error, without addresses or keys. The log level can be overridden temporarily.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ipseity_api::RequestId;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::config::{LogConfig, LogFormat};
use crate::telemetry::otlp::OtlpExporter;

/// Prefix of every crate of this workspace; `[log] level` applies to them. Libraries only log warnings, because some log full headers with API
/// keys at lower levels.
const OWN_TARGETS: &str = "ipseity";

/// Libraries whose warnings contain client addresses, or that warn about every malformed packet.
const SILENCED_TARGETS: [&str; 2] = ["quinn_udp", "quinn_proto"];

const ACCESS_LOG_TARGET: &str = "access";

const OVERRIDE_DEFAULT_S: u64 = 600;

pub(crate) fn configured_level(log: &LogConfig) -> Result<LevelFilter> {
    parse_level(&log.level).with_context(|| format!("invalid [log] level {:?}", log.level))
}

fn parse_level(level: &str) -> Result<LevelFilter> {
    level.parse().ok().context("use error, warn, info, debug or trace")
}

/// Starts logging to standard error and, if configured, to the OTLP collector.
pub(crate) fn init_logging(log: &LogConfig, otlp_exporter: Option<&OtlpExporter>) -> Result<Arc<LogControl>> {
    let configured = LogVerbosity { level: configured_level(log)?, access: log.access };
    let (filter, handle) = reload::Layer::new(configured.targets());
    let layer = match log.format {
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_writer(|| RequestIdWriter(LogFormat::Json)).boxed()
        }
        LogFormat::Text => fmt::layer().with_ansi(false).with_writer(|| RequestIdWriter(LogFormat::Text)).boxed(),
    };
    let (mut layers, mut handles) = (vec![layer.with_filter(filter).boxed()], vec![handle]);
    if let Some(otlp_exporter) = otlp_exporter {
        let (filter, handle) = reload::Layer::new(configured.targets());
        layers.extend([otlp_exporter.span_layer(), otlp_exporter.log_layer(filter)]);
        handles.push(handle);
    }
    tracing_subscriber::registry().with(layers).init();
    // A panic message may contain anything, including an address. Only its location is logged.
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(location, "panicked");
    }));
    Ok(Arc::new(LogControl {
        handles,
        configured: Mutex::new(configured),
        active_override: Mutex::default(),
        override_max_s: log.override_max_s,
    }))
}

/// Writes lines to standard error. A line logged while a request is processed starts with the request ID.
struct RequestIdWriter(LogFormat);

impl Write for RequestIdWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        match (RequestId::current(), self.0, line) {
            (Some(id), LogFormat::Json, [b'{', rest @ ..]) => {
                let prefix = format!("{{\"request_id\":\"{}\",", id.as_str());
                stderr.write_all(&[prefix.as_bytes(), rest].concat())?;
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

#[derive(Clone, Copy)]
struct LogVerbosity {
    level: LevelFilter,
    access: bool,
}

impl LogVerbosity {
    fn targets(self) -> Targets {
        Targets::new()
            .with_default(LevelFilter::WARN.min(self.level))
            .with_targets(SILENCED_TARGETS.map(|name| (name, LevelFilter::OFF)))
            .with_target(OWN_TARGETS, self.level)
            .with_target(ACCESS_LOG_TARGET, if self.access { LevelFilter::INFO } else { LevelFilter::OFF })
    }
}

/// The configured log settings and a temporary override.
pub(crate) struct LogControl {
    /// One for standard error and, if configured, one for the collector.
    handles: Vec<reload::Handle<Targets, Registry>>,
    configured: Mutex<LogVerbosity>,
    active_override: Mutex<Option<LogOverride>>,
    override_max_s: u64,
}

#[derive(Clone, Copy)]
struct LogOverride {
    verbosity: LogVerbosity,
    expires_at: Instant,
}

pub(crate) struct LogStatus {
    pub(crate) level: LevelFilter,
    pub(crate) access: bool,
    /// Seconds until the override ends; `None` without an override.
    pub(crate) remaining_s: Option<u64>,
}

impl LogControl {
    fn configured(&self) -> LogVerbosity {
        *self.configured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the configured log settings. An override stays active.
    pub(crate) fn configure(&self, log: &LogConfig) -> Result<()> {
        let configured = LogVerbosity { level: configured_level(log)?, access: log.access };
        *self.configured.lock().unwrap_or_else(PoisonError::into_inner) = configured;
        let log_override = *self.active_override.lock().unwrap_or_else(PoisonError::into_inner);
        self.apply_override(log_override)
    }

    pub(crate) fn status(&self) -> LogStatus {
        let log_override = *self.active_override.lock().unwrap_or_else(PoisonError::into_inner);
        let LogVerbosity { level, access } =
            log_override.map_or_else(|| self.configured(), |log_override| log_override.verbosity);
        let remaining_s = log_override
            .map(|log_override| log_override.expires_at.saturating_duration_since(Instant::now()).as_secs());
        LogStatus { level, access, remaining_s }
    }

    /// Overrides the log settings for a time; a duration of 0 ends an override immediately.
    pub(crate) fn set_override(
        self: &Arc<Self>,
        level: Option<&str>,
        access: Option<bool>,
        duration_s: Option<u64>,
    ) -> Result<()> {
        let duration_s = duration_s.unwrap_or(OVERRIDE_DEFAULT_S.min(self.override_max_s));
        let max_s = self.override_max_s;
        ensure!(duration_s <= max_s, "duration_s is {duration_s}. The maximum is {max_s} ([log] override_max_s).");
        let configured = self.configured();
        let level = level.map(parse_level).transpose().context("invalid level")?.unwrap_or(configured.level);
        let verbosity = LogVerbosity { level, access: access.unwrap_or(configured.access) };
        let log_override = LogOverride { verbosity, expires_at: Instant::now() + Duration::from_secs(duration_s) };
        tracing::warn!(log_level = %verbosity.level, access = verbosity.access, duration_s, "log override set");
        self.apply_override(Some(log_override))?;
        let log_control = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(log_override.expires_at.into()).await;
            log_control.end_override(log_override.expires_at);
        });
        Ok(())
    }

    /// Ends an override unless a newer one replaced it.
    fn end_override(&self, expires_at: Instant) {
        let is_current = self
            .active_override
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|current| current.expires_at == expires_at);
        if is_current && self.apply_override(None).is_ok() {
            tracing::warn!(log_level = %self.configured().level, "log override ended");
        }
    }

    fn apply_override(&self, log_override: Option<LogOverride>) -> Result<()> {
        let verbosity = log_override.map_or_else(|| self.configured(), |log_override| log_override.verbosity);
        for handle in &self.handles {
            handle.reload(verbosity.targets()).context("failed to change the log settings")?;
        }
        *self.active_override.lock().unwrap_or_else(PoisonError::into_inner) = log_override;
        Ok(())
    }
}
