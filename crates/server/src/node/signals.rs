//! Signals: SIGTERM, SIGINT and SIGQUIT drain the node, SIGHUP reloads, and others that would kill it are ignored. Those
//! of a crash, such as SIGABRT and SIGSEGV, still end it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use ipseity_domain::causes;
use rustix::process::Signal as Number;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::config::Config;
use crate::telemetry::log::LogControl;

/// Signals that end a process by default, and mean nothing to a node.
const IGNORED: [Number; 12] = [
    Number::STKFLT,
    Number::TRAP,
    Number::SYS,
    Number::USR1,
    Number::USR2,
    Number::ALARM,
    Number::VTALARM,
    Number::PROF,
    Number::IO,
    Number::POWER,
    Number::XCPU,
    Number::XFSZ,
];

/// Real-time signals, except those that the C library uses.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// The signals of a node. While this exists, none of them ends the process by itself.
pub(super) struct Signals {
    stop: [Signal; 3],
    reload: Signal,
}

impl Signals {
    pub(super) fn install() -> Result<Self> {
        for number in IGNORED.map(Number::as_raw).into_iter().chain(REAL_TIME) {
            // Tools that run a program, such as valgrind, can reserve one.
            let Ok(mut ignored) = signal(SignalKind::from_raw(number)) else { continue };
            tokio::spawn(async move {
                while ignored.recv().await.is_some() {
                    tracing::warn!(signal = number, "signal ignored");
                }
            });
        }
        let stop = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()];
        let [terminate, interrupt, quit] = stop.map(signal);
        Ok(Self { stop: [terminate?, interrupt?, quit?], reload: signal(SignalKind::hangup())? })
    }

    /// Waits for a signal to stop, and reloads meanwhile.
    pub(super) async fn wait_for_stop(&mut self, reloader: &Reloader) {
        let [terminate, interrupt, quit] = &mut self.stop;
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = quit.recv() => return,
                _ = self.reload.recv() => reloader.reload(),
            }
        }
    }
}

/// Reloads what can be reloaded: log settings, the portal's banner, certificates, geo databases and blocked networks.
pub(super) struct Reloader {
    config: Config,
    config_file: Option<PathBuf>,
    log_control: Arc<LogControl>,
    requests: watch::Sender<()>,
    banner: watch::Sender<String>,
}

impl Reloader {
    pub(super) fn new(config: &Config, config_file: Option<PathBuf>, log_control: Arc<LogControl>) -> Self {
        let banner = watch::Sender::new(config.portal.banner.clone());
        Self { config: config.clone(), config_file, log_control, requests: watch::Sender::new(()), banner }
    }

    /// Notifies tasks that read files of each reload.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.requests.subscribe()
    }

    /// The current `[portal] banner`.
    pub(super) fn banner(&self) -> watch::Receiver<String> {
        self.banner.subscribe()
    }

    /// Lets a task that has written a file request that the others read it.
    pub(super) fn requester(&self) -> watch::Sender<()> {
        self.requests.clone()
    }

    fn reload(&self) {
        self.requests.send_replace(());
        let reloaded = Config::load(self.config_file.as_deref()).and_then(|config| {
            self.log_control.configure(&config.log)?;
            self.banner.send_replace(config.portal.banner.clone());
            self.changed_settings(&config)
        });
        match reloaded {
            Ok(restart_needed) if restart_needed.is_empty() => tracing::info!("reloaded"),
            Ok(restart_needed) => tracing::warn!(?restart_needed, "reloaded, except settings that need a restart"),
            Err(error) => tracing::error!(error = %causes(&*error), "reload failed; the settings are unchanged"),
        }
    }

    /// The names of the changed settings that are not reloaded.
    fn changed_settings(&self, new: &Config) -> Result<Vec<String>> {
        let mut reloaded = self.config.clone();
        (reloaded.log.level, reloaded.log.access) = (new.log.level.clone(), new.log.access);
        reloaded.portal.banner.clone_from(&new.portal.banner);
        reloaded.changed_names(new)
    }
}
