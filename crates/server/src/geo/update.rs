//! Updates geo databases, on command and on a schedule.
//!
//! A new file is downloaded and validated before it replaces the old one in a single rename. If anything fails, the old file stays. The
//! server's validators are stored next to it in `<file>.meta`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use ipseity_domain::causes;
use ipseity_edge::Drain;
use ipseity_geo::Edition;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::config::{GeoConfig, GeoSourceConfig, millis};
use crate::geo::download::{DownloadOutcome, Downloader, HttpValidators, ProgressCallback};
use crate::geo::extract::extract_database;

/// Delay after the first failure; doubles with each further failure.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
/// How often the schedule checks what is due, and its delay after the first failure.
const SCHEDULE_INTERVAL: Duration = Duration::from_secs(60);
/// The delay after the first failure while there is no file.
const MISSING_FILE_DELAY_MIN: Duration = Duration::from_secs(1);
const MISSING_FILE_DELAY_MAX: Duration = Duration::from_secs(3600);
const BACKOFF_DOUBLINGS_MAX: u32 = 12;

pub(crate) enum UpdateOutcome {
    Updated(Box<Edition>),
    Unchanged,
    /// The server asks to retry after the deadline.
    RetryAfter(Duration),
}

/// The content of `<file>.meta`.
#[derive(Default, Deserialize, Serialize)]
struct DownloadMetadata {
    /// Hash of the URL, which may contain a key.
    source: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// Size of the file, to detect other changes.
    bytes: u64,
    /// Unix time of the last check.
    checked_s: u64,
    /// Why the last update failed.
    last_error: Option<String>,
}

pub(crate) struct GeoUpdater {
    downloader: Downloader,
    timeout: Duration,
    bytes_max: u64,
    allow_older: bool,
}

impl GeoUpdater {
    pub(crate) fn open(settings: &GeoConfig) -> Result<Self> {
        Ok(Self {
            downloader: Downloader::open(settings)?,
            timeout: millis(settings.update_timeout_ms),
            bytes_max: settings.update_bytes_max,
            allow_older: settings.allow_older,
        })
    }

    /// Updates a file. The error stays available as [`last_error`] until an update succeeds.
    pub(crate) async fn update_source(
        &self,
        source: &GeoSourceConfig,
        progress: ProgressCallback<'_>,
    ) -> Result<UpdateOutcome> {
        let outcome = self.update_with_retries(source, progress).await;
        if let Err(error) = &outcome {
            let last_error = Some(causes(&**error).to_string());
            // A folder that cannot be written is what the error says already.
            let _ = DownloadMetadata { last_error, ..DownloadMetadata::open(source) }.write(source);
        }
        outcome
    }

    async fn update_with_retries(
        &self,
        source: &GeoSourceConfig,
        progress: ProgressCallback<'_>,
    ) -> Result<UpdateOutcome> {
        let deadline = Instant::now() + self.timeout;
        let mut delay = RETRY_DELAY_MIN;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let outcome = tokio::time::timeout(remaining, self.try_update(source, progress)).await;
            let Ok(outcome) = outcome else {
                return Err(anyhow!(
                    "it took longer than the {} ms of [geo] update_timeout_ms",
                    self.timeout.as_millis()
                ));
            };
            match outcome? {
                UpdateOutcome::RetryAfter(retry_after) if Instant::now() + retry_after.max(delay) < deadline => {
                    tokio::time::sleep(retry_after.max(delay)).await;
                    delay *= 2;
                }
                outcome @ (UpdateOutcome::RetryAfter(_) | UpdateOutcome::Updated(_) | UpdateOutcome::Unchanged) => {
                    return Ok(outcome);
                }
            }
        }
    }

    async fn try_update(&self, source: &GeoSourceConfig, progress: ProgressCallback<'_>) -> Result<UpdateOutcome> {
        let part = ScratchFile::open(&source.file, "part")?;
        part.file.try_lock().map_err(|_| anyhow!("another update of this file is running"))?;
        part.file.set_len(0)?;
        let meta = DownloadMetadata::open(source);
        let new_validators = HttpValidators { etag: meta.etag.clone(), last_modified: meta.last_modified.clone() };
        let mut output = tokio::fs::File::from_std(part.file.try_clone()?);
        let (new_validators, digest) =
            match self.downloader.download(source, &new_validators, &mut output, progress).await? {
                DownloadOutcome::Completed(new_validators, digest) => (new_validators, digest),
                DownloadOutcome::NotModified => {
                    DownloadMetadata { checked_s: unix_now_s(), last_error: None, ..meta }.write(source)?;
                    return Ok(UpdateOutcome::Unchanged);
                }
                DownloadOutcome::RetryAfter(retry_after) => return Ok(UpdateOutcome::RetryAfter(retry_after)),
            };
        if let Some(expected) = self.downloader.fetch_checksum(source).await? {
            ensure!(expected == digest, "its SHA-256 does not match the published one");
        }
        let (file, bytes_max, allow_older) = (source.file.clone(), self.bytes_max, self.allow_older);
        let installing = tokio::task::spawn_blocking(move || install_database(part, &file, bytes_max, allow_older));
        let (edition, bytes) = installing.await.map_err(|_| anyhow!("the validation panicked"))??;
        let HttpValidators { etag, last_modified } = new_validators;
        let checked_s = unix_now_s();
        DownloadMetadata { etag, last_modified, bytes, checked_s, last_error: None, ..meta }.write(source)?;
        Ok(UpdateOutcome::Updated(Box::new(edition)))
    }

    /// Downloads missing files, and updates every source each `interval` if there is one, until the drain starts. Without an
    /// interval, it ends when no file is missing. Failures are retried with exponential backoff.
    pub(crate) async fn run(
        self,
        sources: Vec<GeoSourceConfig>,
        interval: Option<Duration>,
        request_reload: watch::Sender<()>,
        drain: Drain,
    ) {
        let mut schedule: Vec<_> = sources.into_iter().map(ScheduledUpdate::new).collect();
        for ScheduledUpdate { source, .. } in schedule.iter().filter(|update| update.is_missing()) {
            tracing::warn!(file = %source.file.display(), source = source.host(), "geo database missing, downloading it");
        }
        let run_schedule = async {
            loop {
                for update in schedule.iter_mut().filter(|update| update.is_due(interval)) {
                    let was_missing = update.is_missing();
                    let retry_after = self.update_scheduled(&update.source).await;
                    update.note_outcome(retry_after, interval);
                    if was_missing && retry_after.is_none() {
                        // Also if changed files are not watched.
                        request_reload.send_replace(());
                    }
                }
                let missing = schedule.iter().filter(|update| update.is_missing()).map(|update| update.not_before);
                let next = match missing.min() {
                    Some(not_before) => not_before.saturating_duration_since(Instant::now()),
                    None if interval.is_none() => return,
                    None => SCHEDULE_INTERVAL,
                };
                tokio::time::sleep(next.clamp(MISSING_FILE_DELAY_MIN, SCHEDULE_INTERVAL)).await;
            }
        };
        tokio::select! {
            () = run_schedule => {}
            () = drain.started() => {}
        }
    }

    /// Returns the delay that the server requests if the update failed.
    async fn update_scheduled(&self, source: &GeoSourceConfig) -> Option<Duration> {
        let file = source.file.display();
        match self.update_source(source, &mut |_, _| ()).await {
            Ok(UpdateOutcome::Updated(edition)) => {
                tracing::info!(%file, built = edition.built_at(), "geo database downloaded");
                None
            }
            Ok(UpdateOutcome::Unchanged) => None,
            Ok(UpdateOutcome::RetryAfter(retry_after)) => {
                tracing::warn!(%file, retry_after_s = retry_after.as_secs(), "geo download postponed");
                Some(retry_after)
            }
            Err(error) => {
                tracing::warn!(%file, error = %causes(&*error), "geo download failed");
                Some(Duration::ZERO)
            }
        }
    }
}

/// A source, and when its next update may start.
struct ScheduledUpdate {
    source: GeoSourceConfig,
    failures: u32,
    not_before: Instant,
}

impl ScheduledUpdate {
    fn new(source: GeoSourceConfig) -> Self {
        Self { source, failures: 0, not_before: Instant::now() }
    }

    fn is_missing(&self) -> bool {
        !self.source.file.exists()
    }

    fn is_due(&self, interval: Option<Duration>) -> bool {
        let is_outdated = || interval.is_some_and(|interval| DownloadMetadata::open(&self.source).age() >= interval);
        Instant::now() >= self.not_before && (self.is_missing() || is_outdated())
    }

    /// Schedules the next attempt after a failure, which is when there is a delay that the server requests.
    fn note_outcome(&mut self, retry_after: Option<Duration>, interval: Option<Duration>) {
        let Some(retry_after) = retry_after else {
            self.failures = 0;
            return;
        };
        let (delay_min, delay_max) = match (self.is_missing(), interval) {
            (false, Some(interval)) => (SCHEDULE_INTERVAL, interval),
            _ => (MISSING_FILE_DELAY_MIN, MISSING_FILE_DELAY_MAX),
        };
        let backoff = delay_min * 2_u32.pow(self.failures.min(BACKOFF_DOUBLINGS_MAX));
        self.failures += 1;
        self.not_before = Instant::now() + retry_after.max(backoff.min(delay_max));
    }
}

/// Why the last update of a file failed, if it did.
pub(crate) fn last_error(source: &GeoSourceConfig) -> Option<String> {
    DownloadMetadata::open(source).last_error
}

/// Extracts and validates a download, then replaces the old file.
fn install_database(mut part: ScratchFile, file: &Path, bytes_max: u64, allow_older: bool) -> Result<(Edition, u64)> {
    let mut new = ScratchFile::open(file, "new")?;
    new.file.set_len(0)?;
    extract_database(&mut part.file, &mut new.file, bytes_max)?;
    new.file.sync_all().context("failed to write the new file")?;
    let edition = ipseity_geo::check_replacement(&new.path, file, allow_older)?;
    let bytes = new.file.metadata()?.len();
    fs::rename(&new.path, file).with_context(|| format!("failed to replace {}", file.display()))?;
    Ok((edition, bytes))
}

/// A temporary file next to its target; removed when dropped.
struct ScratchFile {
    file: File,
    path: PathBuf,
}

impl ScratchFile {
    fn open(target: &Path, suffix: &str) -> Result<Self> {
        let path = with_suffix(target, suffix);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.with_context(|| format!("failed to write {}", path.display()))?;
        Ok(Self { file, path })
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // It may have been renamed to the target.
        let _ = fs::remove_file(&self.path);
    }
}

impl DownloadMetadata {
    /// Reads the metadata; empty if the file has another source or was changed since.
    fn open(source: &GeoSourceConfig) -> Self {
        let url_digest = hex::encode(Sha256::digest(&source.url));
        let json = fs::read(with_suffix(&source.file, "meta")).unwrap_or_default();
        // Without a file, only the last error matters.
        let bytes = fs::metadata(&source.file).map_or(0, |file| file.len());
        serde_json::from_slice::<Self>(&json)
            .ok()
            .filter(|meta| meta.source == url_digest && meta.bytes == bytes)
            .unwrap_or(Self { source: url_digest, ..Self::default() })
    }

    fn write(self, source: &GeoSourceConfig) -> Result<()> {
        let path = with_suffix(&source.file, "meta");
        fs::write(&path, serde_json::to_vec(&self)?).with_context(|| format!("failed to write {}", path.display()))
    }

    fn age(&self) -> Duration {
        Duration::from_secs(unix_now_s().saturating_sub(self.checked_s))
    }
}

fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// Appends a suffix: `city.mmdb` and `part` become `city.mmdb.part`.
fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}
