//! What shells and manuals know of the command line: `ipseity completions` and `ipseity man`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, output};

/// Prints what a shell needs to complete commands.
pub(super) fn print_completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ipseity", &mut script);
    // Written by ourselves: the library panics when a reader has gone.
    Ok(io::stdout().lock().write_all(&script)?)
}

/// Writes a page for each command.
pub(super) fn write_man_pages(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("the pages cannot be written to {}", dir.display()))?;
    output::print_line(&format!(
        "The pages are in {}; `man -l {}/ipseity.1` shows the first.",
        dir.display(),
        dir.display()
    ))
}
