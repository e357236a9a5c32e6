//! Keeping the geo files up to date: on command, and unattended.
//!
//! A file is replaced by one rename, after the new one was fetched and checked whole; whatever fails before that leaves the
//! last good edition where it is. What the server said of it is kept beside it, in `<file>.meta`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use edge::Drain;
use geo::Edition;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::{Geo, Source, ms};
use crate::fetch::{Fetched, Fetcher, Progress, Validators};
use crate::unpack::unpack;

/// The first pause after a failure; each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The first pause of the schedule after a failure, and how often it looks whether something is due.
const SCHEDULE_PAUSE_MIN: Duration = Duration::from_secs(60);
/// Doublings of a pause.
const DOUBLINGS_MAX: u32 = 10;

pub(crate) enum Outcome {
    /// A new edition is in place.
    Updated(Box<Edition>),
    /// The server has nothing newer.
    Unchanged,
    /// The server wants to be asked again later than there is time for.
    Later(Duration),
}

/// What is kept beside a file.
#[derive(Default, Deserialize, Serialize)]
struct Meta {
    /// Digest of the address: the address itself may hold a key.
    source: String,
    etag: Option<String>,
    last_modified: Option<String>,
    /// Length of the file, by which one that was changed by other hands is known.
    bytes: u64,
    /// When the server was last asked, Unix time.
    checked_s: u64,
}

pub(crate) struct Updater {
    fetcher: Fetcher,
    timeout: Duration,
    bytes_max: u64,
    allow_older: bool,
}

impl Updater {
    pub(crate) fn open(settings: &Geo) -> Result<Self> {
        Ok(Self {
            fetcher: Fetcher::open(settings)?,
            timeout: ms(settings.update_timeout_ms),
            bytes_max: settings.update_bytes_max,
            allow_older: settings.allow_older,
        })
    }

    /// Brings one source's file up to date.
    pub(crate) async fn update(&self, source: &Source, progress: Progress<'_>) -> Result<Outcome> {
        let deadline = Instant::now() + self.timeout;
        let mut pause = PAUSE_MIN;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let outcome = tokio::time::timeout(left, self.attempt(source, progress)).await;
            let Ok(outcome) = outcome else {
                return Err(anyhow!(
                    "it took longer than the {} ms of [geo] update_timeout_ms",
                    self.timeout.as_millis()
                ));
            };
            match outcome? {
                Outcome::Later(wait) if Instant::now() + wait.max(pause) < deadline => {
                    tokio::time::sleep(wait.max(pause)).await;
                    pause *= 2;
                }
                outcome @ (Outcome::Later(_) | Outcome::Updated(_) | Outcome::Unchanged) => return Ok(outcome),
            }
        }
    }

    async fn attempt(&self, source: &Source, progress: Progress<'_>) -> Result<Outcome> {
        let part = Scratch::open(&source.file, "part")?;
        part.file.try_lock().map_err(|_| anyhow!("another update of this file is under way"))?;
        part.file.set_len(0)?;
        let meta = Meta::open(source);
        let held = Validators { etag: meta.etag.clone(), last_modified: meta.last_modified.clone() };
        let mut to = tokio::fs::File::from_std(part.file.try_clone()?);
        let (validators, digest) = match self.fetcher.fetch(source, &held, &mut to, progress).await? {
            Fetched::Whole(validators, digest) => (validators, digest),
            Fetched::Unchanged => {
                meta.write(source)?;
                return Ok(Outcome::Unchanged);
            }
            Fetched::Later(wait) => return Ok(Outcome::Later(wait)),
        };
        if let Some(promised) = self.fetcher.checksum(source).await? {
            ensure!(promised == digest, "its SHA-256 is not the one that the server promises");
        }
        let (file, bytes_max, allow_older) = (source.file.clone(), self.bytes_max, self.allow_older);
        let installing = tokio::task::spawn_blocking(move || install(part, &file, bytes_max, allow_older));
        let (edition, bytes) = installing.await.map_err(|_| anyhow!("the check panicked"))??;
        let Validators { etag, last_modified } = validators;
        Meta { etag, last_modified, bytes, ..meta }.write(source)?;
        Ok(Outcome::Updated(Box::new(edition)))
    }

    /// Updates every source each `interval`, until the drain starts; after a failure sooner, and ever less often.
    pub(crate) async fn run(self, sources: Vec<Source>, interval: Duration, drain: Drain) {
        let mut plans: Vec<_> = sources.into_iter().map(|source| (source, 0_u32, Instant::now())).collect();
        let attending = async {
            loop {
                for (source, failures, not_before) in &mut plans {
                    if Instant::now() < *not_before || Meta::open(source).age() < interval {
                        continue;
                    }
                    let Some(wait) = self.attend(source).await else {
                        *failures = 0;
                        continue;
                    };
                    let pause = SCHEDULE_PAUSE_MIN * 2_u32.pow((*failures).min(DOUBLINGS_MAX));
                    *failures += 1;
                    *not_before = Instant::now() + wait.max(pause.min(interval));
                }
                tokio::time::sleep(SCHEDULE_PAUSE_MIN).await;
            }
        };
        tokio::select! {
            () = attending => {}
            () = drain.started() => {}
        }
    }

    /// Updates a source's file unattended; if that fails, tells how long the server wants to be left alone.
    async fn attend(&self, source: &Source) -> Option<Duration> {
        let file = source.file.display();
        match self.update(source, &mut |_, _| ()).await {
            Ok(Outcome::Updated(edition)) => {
                tracing::info!(%file, built = edition.built_at(), "a geo file was fetched");
                None
            }
            Ok(Outcome::Unchanged) => None,
            Ok(Outcome::Later(wait)) => {
                tracing::warn!(%file, wait_s = wait.as_secs(), "a geo file's server asks to come back later");
                Some(wait)
            }
            Err(error) => {
                tracing::warn!(%file, error = &*error, "a geo file could not be fetched; the old one stays");
                Some(Duration::ZERO)
            }
        }
    }
}

/// Unpacks, checks, and puts the new file in the old one's place.
fn install(mut part: Scratch, file: &Path, bytes_max: u64, allow_older: bool) -> Result<(Edition, u64)> {
    let mut new = Scratch::open(file, "new")?;
    new.file.set_len(0)?;
    unpack(&mut part.file, &mut new.file, bytes_max)?;
    new.file.sync_all().context("the new file cannot be written")?;
    let edition = geo::admit(&new.path, file, allow_older)?;
    let bytes = new.file.metadata()?.len();
    fs::rename(&new.path, file).with_context(|| format!("{} cannot be replaced", file.display()))?;
    Ok((edition, bytes))
}

/// A file of work beside the one that it is for; removed when dropped.
struct Scratch {
    file: File,
    path: PathBuf,
}

impl Scratch {
    fn open(beside: &Path, end: &str) -> Result<Self> {
        let path = extended(beside, end);
        let options = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = options.with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Self { file, path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may have become the file itself.
        let _ = fs::remove_file(&self.path);
    }
}

impl Meta {
    /// What is known of a source's file; nothing if it came from elsewhere, or was changed since.
    fn open(source: &Source) -> Self {
        let address = Sha256::digest(&source.url).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text = fs::read(extended(&source.file, "meta")).unwrap_or_default();
        let bytes = fs::metadata(&source.file).map(|file| file.len()).ok();
        serde_json::from_slice::<Self>(&text)
            .ok()
            .filter(|meta| meta.source == address && Some(meta.bytes) == bytes)
            .unwrap_or(Self { source: address, ..Self::default() })
    }

    fn write(self, source: &Source) -> Result<()> {
        let meta = Self { checked_s: now_s(), ..self };
        let path = extended(&source.file, "meta");
        fs::write(&path, serde_json::to_vec(&meta)?).with_context(|| format!("{} cannot be written", path.display()))
    }

    fn age(&self) -> Duration {
        Duration::from_secs(now_s().saturating_sub(self.checked_s))
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// `city.mmdb` and `part` make `city.mmdb.part`.
fn extended(file: &Path, end: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(end);
    name.into()
}
