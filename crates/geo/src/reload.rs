//! The current atlas, and its replacement when a file changes.
//!
//! A request takes the current atlas once, so a replacement never mixes editions. An invalid file changes nothing. The
//! old and the new atlas share unchanged databases.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::asn_lists::AsnLists;
use crate::atlas::{Atlas, AtlasSources};
use crate::database::MmdbDatabase;
use crate::error::GeoError;
use crate::replacement::{load_first, load_replacement};

/// A file that changes again within this time counts as still being written.
const WRITE_DEBOUNCE: Duration = Duration::from_millis(100);

/// Holds the current atlas and replaces it when files change.
pub struct AtlasReloader {
    sources: AtlasSources,
    allow_older: bool,
    current: ArcSwap<Atlas>,
    seen: Mutex<SeenFingerprints>,
}

/// The result of [`AtlasReloader::refresh`].
#[derive(Debug, Default)]
pub struct ReloadReport {
    /// Files whose new content is now in use.
    pub reloaded: Vec<PathBuf>,
    /// Why changed files were rejected. Each error is reported once.
    pub rejected: Vec<GeoError>,
}

/// The fingerprints of the files when they were last accepted or rejected.
struct SeenFingerprints {
    databases: Vec<FileFingerprint>,
    lists: Vec<FileFingerprint>,
}

/// Identifies the content of a file without reading it: device, inode, size and times. `None` if it does not exist.
///
/// Symbolic links are followed, so a link to another file counts as a change. The status change time (ctime) is
/// included, because copy tools often preserve the modification time.
type FileFingerprint = Option<(u64, u64, u64, [i64; 4])>;

impl AtlasReloader {
    /// Reads the files. See [`Atlas::open`].
    ///
    /// # Errors
    /// If a file that is not optional is missing, or a file is unreadable or damaged, or has no supported facts.
    pub fn open(sources: AtlasSources, allow_older: bool) -> Result<Self, GeoError> {
        // Taken before the files are read, so that the first refresh notices a change in between.
        let seen = SeenFingerprints {
            databases: fingerprint_files(&sources.files),
            lists: fingerprint_files(&list_paths(&sources)),
        };
        let current = ArcSwap::from_pointee(Atlas::open(&sources)?);
        Ok(Self { sources, allow_older, current, seen: Mutex::new(seen) })
    }

    /// The current atlas.
    #[must_use]
    pub fn current(&self) -> Arc<Atlas> {
        self.current.load_full()
    }

    /// Checks for changed files and uses those that are completely valid. Slow if a file has changed.
    pub fn refresh(&self) -> ReloadReport {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = ReloadReport::default();
        let current = self.current();
        let mut databases: Vec<Arc<MmdbDatabase>> = Vec::new();
        for (path, fingerprint) in self.sources.files.iter().zip(&mut seen.databases) {
            let old = current.databases().iter().find(|database| database.path() == path);
            let outcome = load_if_changed(
                fingerprint,
                || fingerprint_file(path),
                || old.map_or_else(|| load_first(path), |old| load_replacement(old, self.allow_older)),
            );
            databases.extend(new_or_old(outcome, old.cloned(), std::slice::from_ref(path), &mut report));
        }
        let paths = list_paths(&self.sources);
        let outcome = load_if_changed(
            &mut seen.lists,
            || fingerprint_files(&paths),
            || AsnLists::open(&self.sources.hosting_lists, &self.sources.proxy_lists),
        );
        let asn_lists = new_or_old(outcome, Some(Arc::clone(current.asn_lists())), &paths, &mut report);
        if !report.reloaded.is_empty() {
            self.current.store(Arc::new(Atlas::new(databases, asn_lists.unwrap_or_default())));
        }
        report
    }
}

/// Loads files that have changed, unless they are still changing.
fn load_if_changed<S: PartialEq, T>(
    seen: &mut S,
    fingerprint: impl Fn() -> S,
    load: impl FnOnce() -> Result<T, GeoError>,
) -> Option<Result<T, GeoError>> {
    let current = fingerprint();
    if current == *seen {
        return None;
    }
    thread::sleep(WRITE_DEBOUNCE);
    if fingerprint() != current {
        return None;
    }
    let load = load();
    if fingerprint() != current {
        return None;
    }
    *seen = current;
    Some(load)
}

/// What to use now, which is added to the report.
fn new_or_old<T>(
    outcome: Option<Result<T, GeoError>>,
    old: Option<Arc<T>>,
    paths: &[PathBuf],
    report: &mut ReloadReport,
) -> Option<Arc<T>> {
    match outcome {
        Some(Ok(new)) => {
            report.reloaded.extend_from_slice(paths);
            return Some(Arc::new(new));
        }
        Some(Err(reason)) => report.rejected.push(reason),
        None => {}
    }
    old
}

fn list_paths(sources: &AtlasSources) -> Vec<PathBuf> {
    [sources.hosting_lists.as_slice(), &sources.proxy_lists].concat()
}

fn fingerprint_files(paths: &[PathBuf]) -> Vec<FileFingerprint> {
    paths.iter().map(|path| fingerprint_file(path)).collect()
}

fn fingerprint_file(path: &Path) -> FileFingerprint {
    let metadata = fs::metadata(path).ok()?;
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    Some((metadata.dev(), metadata.ino(), metadata.len(), times))
}
