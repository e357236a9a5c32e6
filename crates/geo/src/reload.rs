//! The atlas in use, and its renewal when a file changes.
//!
//! Whoever answers takes the current atlas once and keeps it for the whole answer; a swap never mixes editions. A file that
//! cannot be used changes nothing, and a file that did not change is shared between the old atlas and the new one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::asn_lists::AsnLists;
use crate::atlas::{Atlas, AtlasSources};
use crate::error::GeoError;
use crate::replacement::load_replacement;

/// A file that changes again within this time is still being written.
const WRITE_DEBOUNCE: Duration = Duration::from_millis(100);

/// Holds the atlas in use.
pub struct AtlasReloader {
    sources: AtlasSources,
    allow_older: bool,
    current: ArcSwap<Atlas>,
    seen: Mutex<SeenFingerprints>,
}

/// What a look at the files led to.
#[derive(Debug, Default)]
pub struct ReloadReport {
    /// Files whose new content is in use now.
    pub swapped: Vec<PathBuf>,
    /// Why others are not; each is told once.
    pub refused: Vec<GeoError>,
}

/// The files as they were when they were last taken or refused.
struct SeenFingerprints {
    databases: Vec<FileFingerprint>,
    lists: Vec<FileFingerprint>,
}

/// What tells one content of a path from another without reading it; `None` for a path that leads nowhere.
///
/// Links are followed: a link that is turned to another file has changed. The time of the last status change is in it
/// because tools that copy often set the time of the last modification back.
type FileFingerprint = Option<(u64, u64, u64, [i64; 4])>;

impl AtlasReloader {
    /// Reads the files; see [`Atlas::open`].
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or tells nothing that is understood.
    pub fn open(sources: AtlasSources, allow_older: bool) -> Result<Self, GeoError> {
        // Before the files are read: a change in between is seen by the first refresh.
        let seen = SeenFingerprints {
            databases: fingerprint_files(&sources.files),
            lists: fingerprint_files(&list_paths(&sources)),
        };
        let current = ArcSwap::from_pointee(Atlas::open(&sources)?);
        Ok(Self { sources, allow_older, current, seen: Mutex::new(seen) })
    }

    /// The atlas in use.
    #[must_use]
    pub fn current(&self) -> Arc<Atlas> {
        self.current.load_full()
    }

    /// Looks at the files, and brings what has changed into use after it was checked whole; slow when something has.
    pub fn refresh(&self) -> ReloadReport {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = ReloadReport::default();
        let current = self.current();
        let mut databases = current.databases().to_vec();
        for ((path, fingerprint), database) in self.sources.files.iter().zip(&mut seen.databases).zip(&mut databases) {
            let outcome = load_if_changed(
                fingerprint,
                || fingerprint_file(path),
                || load_replacement(database, self.allow_older),
            );
            apply_outcome(outcome, database, std::slice::from_ref(path), &mut report);
        }
        let (paths, mut asn_lists) = (list_paths(&self.sources), Arc::clone(current.asn_lists()));
        let outcome = load_if_changed(
            &mut seen.lists,
            || fingerprint_files(&paths),
            || AsnLists::open(&self.sources.hosting_lists, &self.sources.proxy_lists),
        );
        apply_outcome(outcome, &mut asn_lists, &paths, &mut report);
        if !report.swapped.is_empty() {
            self.current.store(Arc::new(Atlas::new(databases, asn_lists)));
        }
        report
    }
}

/// Reads anew what has changed since it was last seen; not yet, if it goes on changing.
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

fn apply_outcome<T>(
    outcome: Option<Result<T, GeoError>>,
    current: &mut Arc<T>,
    paths: &[PathBuf],
    report: &mut ReloadReport,
) {
    match outcome {
        Some(Ok(new)) => {
            *current = Arc::new(new);
            report.swapped.extend_from_slice(paths);
        }
        Some(Err(reason)) => report.refused.push(reason),
        None => {}
    }
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
