//! Reads the list of blocked networks, and again when its file changes. Neither networks nor clients are logged.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use ipseity_api::BlockedNetworks;
use ipseity_domain::{NetworkSet, causes};
use ipseity_edge::Drain;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::config::edge::EdgeConfig;
use crate::tasks::outcome_counter::OutcomeCounter;
use crate::tasks::periodic::run_on_reload;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A file that changes again within this time counts as still being written.
const WRITE_DEBOUNCE: Duration = Duration::from_millis(100);
/// Maximum size of the file, per line.
const LINE_BYTES_MAX: usize = 256;

const RELOADED: &str = "reloaded";
const REJECTED: &str = "rejected";

/// Reads the list of `[edge] blocked_networks_file`; `None` without a file.
pub(crate) fn open_blocked_networks(settings: &EdgeConfig) -> Result<Option<Arc<BlockedNetworks>>> {
    if settings.blocked_networks_file.as_os_str().is_empty() {
        return Ok(None);
    }
    let networks = read_networks(&settings.blocked_networks_file, settings.blocked_networks_lines_max)
        .context("failed to load [edge] blocked_networks_file")?;
    Ok(Some(Arc::new(BlockedNetworks::new(networks))))
}

fn read_networks(file: &Path, lines_max: usize) -> Result<NetworkSet> {
    let path = file.display();
    let read_error = || format!("failed to read {path}");
    let bytes_max = lines_max.saturating_mul(LINE_BYTES_MAX) as u64;
    let mut text = String::new();
    // To open a pipe would wait for its writer.
    ensure!(fs::metadata(file).with_context(read_error)?.is_file(), "{path} is not a regular file");
    let opened = File::open(file).with_context(read_error)?;
    opened.take(bytes_max.saturating_add(1)).read_to_string(&mut text).with_context(read_error)?;
    ensure!(text.len() as u64 <= bytes_max, "{path} is larger than {bytes_max} bytes");
    ensure!(
        text.lines().count() <= lines_max,
        "{path} has more lines than the {lines_max} of [edge] blocked_networks_lines_max"
    );
    NetworkSet::parse(&text).map_err(|(line, error)| anyhow!("line {line} of {path} is invalid: {error}"))
}

/// Polls the file. Unlike inotify, polling also notices replaced symlinks, network file systems and container volumes.
pub(crate) struct BlockedNetworksWorker {
    blocked: Arc<BlockedNetworks>,
    file: PathBuf,
    lines_max: usize,
    /// The file when it was last accepted or rejected.
    seen: Mutex<Option<FileState>>,
    reloads: OutcomeCounter,
    loaded: Gauge,
}

/// Device, inode, size, and times of modification and status change. `None` if the file does not exist.
type FileState = Option<[i128; 7]>;

impl BlockedNetworksWorker {
    pub(crate) fn register(
        registry: &mut Registry,
        settings: &EdgeConfig,
        blocked: Option<&Arc<BlockedNetworks>>,
    ) -> Option<Arc<Self>> {
        let loaded = Gauge::default();
        registry.register("blocked_networks", "Networks in the list of blocked networks", loaded.clone());
        let reloads = OutcomeCounter::register(
            registry,
            "blocked_networks_reloads",
            "Changed lists of blocked networks, by outcome",
            [RELOADED, REJECTED],
        );
        let blocked = Arc::clone(blocked?);
        set_count(&loaded, &blocked);
        Some(Arc::new(Self {
            blocked,
            file: settings.blocked_networks_file.clone(),
            lines_max: settings.blocked_networks_lines_max,
            // The first check reads the file again, in case it has changed since.
            seen: Mutex::new(None),
            reloads,
            loaded,
        }))
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(self: Arc<Self>, reload_requests: watch::Receiver<()>, drain: Drain) {
        run_on_reload(Some(CHECK_INTERVAL), reload_requests, &drain, || {
            let worker = Arc::clone(&self);
            // A slow file system must not block the threads that serve requests.
            tokio::task::spawn_blocking(move || worker.check_file())
        })
        .await;
    }

    fn check_file(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let state = file_state(&self.file);
        if *seen == Some(state) {
            return;
        }
        thread::sleep(WRITE_DEBOUNCE);
        let networks = read_networks(&self.file, self.lines_max);
        if file_state(&self.file) != state {
            return;
        }
        *seen = Some(state);
        match networks {
            Ok(networks) => {
                self.blocked.replace(networks);
                set_count(&self.loaded, &self.blocked);
                self.reloads.inc(RELOADED);
                tracing::info!(networks = self.blocked.network_count(), "blocked networks loaded");
            }
            Err(error) => {
                self.reloads.inc(REJECTED);
                tracing::warn!(error = %causes(&*error), "blocked networks rejected, the old list stays in use");
            }
        }
    }
}

fn set_count(loaded: &Gauge, blocked: &BlockedNetworks) {
    loaded.set(i64::try_from(blocked.network_count()).unwrap_or(i64::MAX));
}

fn file_state(file: &Path) -> FileState {
    let metadata = fs::metadata(file).ok()?;
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()].map(i128::from);
    let [modified_s, modified_ns, changed_s, changed_ns] = times;
    let identity = [metadata.dev(), metadata.ino(), metadata.len()].map(i128::from);
    let [device, inode, bytes] = identity;
    Some([device, inode, bytes, modified_s, modified_ns, changed_s, changed_ns])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_a_maximum_size_and_errors_name_file_and_line() {
        let file = std::env::temp_dir().join(format!("ipseity-blocked-{}", std::process::id()));
        let read = |text: &str, lines_max| {
            fs::write(&file, text).expect("file is written");
            read_networks(&file, lines_max).map(|networks| networks.network_count()).map_err(|error| error.to_string())
        };
        assert_eq!(read("192.0.2.1\n# two\n", 2), Ok(1));
        let error = read("192.0.2.1\n192.0.2.2\n192.0.2.3\n", 2).expect_err("too many lines");
        assert!(error.contains("more lines than the 2 of [edge] blocked_networks_lines_max"), "{error}");
        let error = read(&"#".repeat(600), 2).expect_err("too large");
        assert!(error.contains("larger than 512 bytes"), "{error}");
        let error = read("192.0.2.1\n198.51.100.7/24\n", 2).expect_err("invalid line");
        assert!(error.contains("line 2 of ") && error.contains("ipseity-blocked-"), "{error}");
        assert!(!error.contains("192.0.2"), "{error}");
        fs::remove_file(&file).expect("file is removed");
    }
}
