//! Temporary directories that are removed with their owner.
//!
//! A killed process removes nothing. So each directory contains a locked file, and creating a directory removes all
//! whose lock is free.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use anyhow::{Context, Result};

const PREFIX: &str = "ipseity-";
const LOCK_FILE: &str = ".owner";
/// A younger directory may not have locked its file yet.
const LOCK_GRACE: Duration = Duration::from_secs(10);

/// A temporary directory; removed when dropped.
#[derive(Debug)]
pub struct TestDir {
    path: PathBuf,
    _lock: File,
}

impl TestDir {
    /// Creates an empty directory.
    pub fn create() -> Result<Self> {
        static REMOVE_ORPHANS: Once = Once::new();
        REMOVE_ORPHANS.call_once(remove_orphans);
        let path = loop {
            let path = std::env::temp_dir().join(format!("{PREFIX}{:012x}", fastrand::u64(..) >> 16));
            // 0711, so that PostgreSQL's user can reach its directory inside.
            match DirBuilder::new().mode(0o711).create(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context(format!("failed to create {}", path.display())),
            }
        };
        let lock = File::create(path.join(LOCK_FILE))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock })
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // If this fails, a later cleanup removes it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn remove_orphans() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_orphaned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_orphaned(path: &Path) -> bool {
    let Ok(lock) = File::open(path.join(LOCK_FILE)) else { return false };
    let age = lock.metadata().and_then(|lock| lock.modified()).map(|born| born.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age > LOCK_GRACE) && lock.try_lock().is_ok()
}
