//! A wall clock that a test controls, through a library preloaded into a process (`clock.c`).
//!
//! Limits use the clock of Redis, so most tests only need to control Redis. Tests that simulate months share one clock
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

/// Microseconds in a millisecond, shifted past the bit that freezes the clock.
const UNITS_PER_MS: i64 = 1_000 << 1;
const FROZEN_BIT: i64 = 1;

/// A clock. Clones share it. It starts at the real time.
#[derive(Debug, Clone)]
pub struct TestClock {
    word: &'static AtomicI64,
    dir: Arc<TestDir>,
}

impl TestClock {
    /// Compiles the library and creates the shared clock.
    pub fn open() -> Result<Self> {
        let dir = TestDir::create()?;
        let source = dir.path().join("clock.c");
        fs::write(&source, include_str!("clock.c"))?;
        let clock = Self { word: map_word(&dir)?, dir: Arc::new(dir) };
        let arguments = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"];
        let gcc = Command::new("gcc").args(arguments).arg(clock.library_path()).arg(source).output();
        let output = gcc.context("failed to run gcc, which compiles the test clock")?;
        ensure!(
            output.status.success(),
            "failed to compile the test clock: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(clock)
    }

    /// Sets the clock to the real time plus an offset.
    pub fn set_offset_ms(&self, by_ms: i64) {
        self.word.store(by_ms * UNITS_PER_MS, Ordering::SeqCst);
    }

    /// Freezes the clock at this time.
    pub fn freeze_at_ms(&self, unix_ms: i64) {
        self.word.store((unix_ms * UNITS_PER_MS) | FROZEN_BIT, Ordering::SeqCst);
    }

    /// Moves the clock forward or, with a negative number, backward.
    pub fn advance_ms(&self, by_ms: i64) {
        self.word.fetch_add(by_ms * UNITS_PER_MS, Ordering::SeqCst);
    }

    /// Environment variables for a process that uses this clock.
    #[must_use]
    pub fn env(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library_path()), ("IPSEITY_CLOCK", self.dir.path().join("clock"))]
    }

    fn library_path(&self) -> PathBuf {
        self.dir.path().join("clock.so")
    }
}

#[expect(unsafe_code, reason = "a shared mapping makes writes atomic; a file write could be read half-written")]
fn map_word(dir: &TestDir) -> Result<&'static AtomicI64> {
    let size = size_of::<AtomicI64>();
    let file = File::options().read(true).write(true).create(true).truncate(true).open(dir.path().join("clock"))?;
    file.set_len(size as u64)?;
    let (access, sharing) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of a file of this size, which is never truncated.
    let page = unsafe { libc::mmap(ptr::null_mut(), size, access, sharing, file.as_raw_fd(), 0) };
    ensure!(page != libc::MAP_FAILED, "failed to map the clock: {}", std::io::Error::last_os_error());
    // SAFETY: page-aligned, zeroed, and never unmapped; all access is atomic.
    Ok(unsafe { &*page.cast::<AtomicI64>() })
}
