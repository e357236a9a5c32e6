//! What shells and manuals know of the command line: `ipseity completions` and `ipseity man`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use super::{Line, show};

/// Prints what a shell needs to complete commands.
pub(super) fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Line::command(), "ipseity", &mut script);
    // Written by ourselves: the library panics when a reader has gone.
    Ok(io::stdout().lock().write_all(&script)?)
}

/// Writes a page for each command.
pub(super) fn man(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    clap_mangen::generate_to(Line::command(), folder)
        .with_context(|| format!("the pages cannot be written to {}", folder.display()))?;
    show::line(&format!(
        "The pages are in {}; `man -l {}/ipseity.1` shows the first.",
        folder.display(),
        folder.display()
    ))
}
