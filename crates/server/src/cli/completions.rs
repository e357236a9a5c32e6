//! `ipseity completions` and `ipseity man`

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::cli::output;

pub(super) fn print_completions(shell: Shell, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "ipseity", &mut script);
    // Not written by the library, which panics on a closed pipe.
    Ok(io::stdout().lock().write_all(&script)?)
}

pub(super) fn write_man_pages(dir: &Path, command: Command) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("failed to write man pages to {}", dir.display()))?;
    output::print_line(&format!(
        "Wrote man pages to {}. To read the first one, run `man -l {}/ipseity.1`.",
        dir.display(),
        dir.display()
    ))
}
