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

use crate::atlas::{Atlas, Sources};
use crate::error::GeoError;
use crate::list::Lists;
use crate::succession::renew;

/// A file that changes again within this time is still being written.
const SETTLE: Duration = Duration::from_millis(100);

/// Holds the atlas in use.
pub struct Shelf {
    sources: Sources,
    allow_older: bool,
    current: ArcSwap<Atlas>,
    seen: Mutex<Seen>,
}

/// What a look at the files led to.
#[derive(Debug, Default)]
pub struct News {
    /// Files whose new content is in use now.
    pub swapped: Vec<PathBuf>,
    /// Why others are not; each is told once.
    pub refused: Vec<GeoError>,
}

/// The files as they were when they were last taken or refused.
struct Seen {
    files: Vec<Stamp>,
    lists: Vec<Stamp>,
}

/// What tells one content of a path from another without reading it; `None` for a path that leads nowhere.
///
/// Links are followed: a link that is turned to another file has changed. The time of the last status change is in it
/// because tools that copy often set the time of the last modification back.
type Stamp = Option<(u64, u64, u64, [i64; 4])>;

impl Shelf {
    /// Reads the files; see [`Atlas::open`].
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, or tells nothing that is understood.
    pub fn open(sources: Sources, allow_older: bool) -> Result<Self, GeoError> {
        // Before the files are read: a change in between is seen by the first refresh.
        let seen = Seen { files: stamps(&sources.files), lists: stamps(&lists(&sources)) };
        let current = ArcSwap::from_pointee(Atlas::open(&sources)?);
        Ok(Self { sources, allow_older, current, seen: Mutex::new(seen) })
    }

    /// The atlas in use.
    #[must_use]
    pub fn current(&self) -> Arc<Atlas> {
        self.current.load_full()
    }

    /// Looks at the files, and brings what has changed into use after it was checked whole; slow when something has.
    pub fn refresh(&self) -> News {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut news = News::default();
        let current = self.current();
        let mut databases = current.databases().to_vec();
        for ((path, stamp), database) in self.sources.files.iter().zip(&mut seen.files).zip(&mut databases) {
            let renewed = if_changed(stamp, || self::stamp(path), || renew(database, self.allow_older));
            note(renewed, database, std::slice::from_ref(path), &mut news);
        }
        let (paths, mut held) = (lists(&self.sources), Arc::clone(current.lists()));
        let renewed = if_changed(
            &mut seen.lists,
            || stamps(&paths),
            || Lists::open(&self.sources.hosting_lists, &self.sources.proxy_lists),
        );
        note(renewed, &mut held, &paths, &mut news);
        if !news.swapped.is_empty() {
            self.current.store(Arc::new(Atlas::new(databases, held)));
        }
        news
    }
}

/// Reads anew what has changed since it was last seen; not yet, if it goes on changing.
fn if_changed<S: PartialEq, T>(
    seen: &mut S,
    look: impl Fn() -> S,
    read: impl FnOnce() -> Result<T, GeoError>,
) -> Option<Result<T, GeoError>> {
    let found = look();
    if found == *seen {
        return None;
    }
    thread::sleep(SETTLE);
    if look() != found {
        return None;
    }
    let read = read();
    if look() != found {
        return None;
    }
    *seen = found;
    Some(read)
}

fn note<T>(renewed: Option<Result<T, GeoError>>, held: &mut Arc<T>, paths: &[PathBuf], news: &mut News) {
    match renewed {
        Some(Ok(new)) => {
            *held = Arc::new(new);
            news.swapped.extend_from_slice(paths);
        }
        Some(Err(reason)) => news.refused.push(reason),
        None => {}
    }
}

fn lists(sources: &Sources) -> Vec<PathBuf> {
    [sources.hosting_lists.as_slice(), &sources.proxy_lists].concat()
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    paths.iter().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    Some((found.dev(), found.ino(), found.len(), times))
}
