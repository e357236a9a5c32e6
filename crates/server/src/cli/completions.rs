//! `ipseity completions` and `ipseity man`

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::cli::output;

/// What the first man page has besides the help.
const MAN_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
\fB0\fR
Success.
.TP
\fB1\fR
Failure. The error is on standard error. \fBdoctor\fR found an error, or \fBready\fR a node that should receive no requests.
.TP
\fB2\fR
Wrong arguments.
.TP
\fB141\fR
The reader of the output closed it.
.SH ENVIRONMENT
.TP
\fBIPSEITY_CONFIG\fR
The configuration file, if \fB\-\-config\fR is not given.
.TP
\fBIPSEITY__SECTION__SETTING\fR
A setting. It overrides the configuration file. An empty value clears an optional setting.
.TP
\fBIPSEITY_OPERATOR\fR
The name of the operator in the audit log. The default is the name of the user.
.SH FILES
.TP
\fI/etc/ipseity/ipseity.toml\fR
The configuration file of the packaged service, which \fBipseityctl\fR uses for all commands.
.TP
\fI/usr/share/ipseity/default.toml\fR
Every setting with its default and meaning.
.TP
\fI/usr/share/doc/ipseity/operations\fR
The runbook.
"#;

pub(super) fn print_completions(shell: Shell, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "ipseity", &mut script);
    // Not written by the library, which panics on a closed pipe.
    Ok(io::stdout().lock().write_all(&script)?)
}

pub(super) fn write_man_pages(dir: &Path, command: Command) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
    clap_mangen::generate_to(command, dir)
        .and_then(|()| OpenOptions::new().append(true).open(dir.join("ipseity.1"))?.write_all(MAN_SECTIONS.as_bytes()))
        .with_context(|| format!("failed to write man pages to {}", dir.display()))?;
    output::print_line(&format!(
        "Wrote man pages to {}. To read the first one, run `man -l {}/ipseity.1`.",
        dir.display(),
        dir.display()
    ))
}
