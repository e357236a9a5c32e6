//! A wall clock that a test sets, by a small library of ours preloaded into a process (`clock.c`).
//!
//! Limits follow the counter store's clock, so that Redis alone is enough for most tests; those that live through months share one clock
//! between Redis, PostgreSQL and the service.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::test_dir::TestDir;

/// Microseconds in a millisecond, moved past the bit that says whether the clock stands still.
const UNITS_PER_MS: i64 = 1_000 << 1;
const FROZEN_BIT: i64 = 1;

/// A clock; its clones are the same clock. It starts as the real time.
#[derive(Debug, Clone)]
pub struct TestClock {
    word: &'static AtomicI64,
    dir: Arc<TestDir>,
}

impl TestClock {
    /// Compiles the library and makes the clock that it will read.
    pub fn open() -> Result<Self> {
        let folder = TestDir::create()?;
        let source = folder.path().join("clock.c");
        fs::write(&source, include_str!("clock.c"))?;
        let clock = Self { word: map_word(&folder)?, dir: Arc::new(folder) };
        let arguments = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"];
        let gcc = Command::new("gcc").args(arguments).arg(clock.library_path()).arg(source).output();
        let output = gcc.context("cannot run gcc, which compiles the test clock")?;
        ensure!(
            output.status.success(),
            "the test clock does not compile: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(clock)
    }

    /// The real time, moved by so much.
    pub fn set_offset_ms(&self, by_ms: i64) {
        self.word.store(by_ms * UNITS_PER_MS, Ordering::SeqCst);
    }

    /// Exactly this time, standing still.
    pub fn freeze_at_ms(&self, unix_ms: i64) {
        self.word.store((unix_ms * UNITS_PER_MS) | FROZEN_BIT, Ordering::SeqCst);
    }

    /// Moves the clock, running or still, from where it is; backwards too.
    pub fn advance_ms(&self, by_ms: i64) {
        self.word.fetch_add(by_ms * UNITS_PER_MS, Ordering::SeqCst);
    }

    /// What a process needs in its environment to live by this clock.
    #[must_use]
    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library_path()), ("IPSEITY_CLOCK", self.dir.path().join("clock"))]
    }

    fn library_path(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }
}

#[expect(
    unsafe_code,
    reason = "a word shared with another process has to be mapped: a write to the file may be seen in halves"
)]
fn map_word(folder: &TestDir) -> Result<&'static AtomicI64> {
    let size = size_of::<AtomicI64>();
    let file = File::options().read(true).write(true).create(true).truncate(true).open(folder.path().join("clock"))?;
    file.set_len(size as u64)?;
    let (access, sharing) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping, of a file of this size that nobody shortens.
    let page = unsafe { libc::mmap(ptr::null_mut(), size, access, sharing, file.as_raw_fd(), 0) };
    ensure!(page != libc::MAP_FAILED, "cannot map the clock: {}", std::io::Error::last_os_error());
    // SAFETY: page-aligned, zeroed, and never unmapped; all access is atomic.
    Ok(unsafe { &*page.cast::<AtomicI64>() })
}
