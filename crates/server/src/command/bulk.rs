//! `ipseity key issue-all`: many keys at once.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use domain::account::{Email, KeyName};
use domain::{ClearKey, Scope};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use store::{By, Refused, StoreError};

use super::key::random_byte;
use super::{Desk, show};

/// Lines of a file: a slip of the hand should not make a million keys.
const LINES_MAX: usize = 100_000;

#[derive(Args)]
pub(super) struct IssueAll {
    /// A file with a line `email,scope,name` for each key; empty lines and those that begin with # are left out.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the new keys go, one JSON object a line with `account`, `name`, `scope`, `id` and `key`. The file must be new; only you may read it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Make accounts that are missing, on the free plan.
    #[arg(long)]
    create_accounts: bool,
}

struct Wish {
    email: Email,
    scope: Scope,
    name: KeyName,
}

impl IssueAll {
    pub(super) async fn run(&self, desk: &Desk) -> Result<()> {
        let wishes = read(&self.file)?;
        // Opened before the first key is made: a key that cannot be written down is lost.
        let new = File::options().write(true).create_new(true).mode(0o600).open(&self.out);
        let mut out = new.with_context(|| {
            format!("{} cannot be made; it must not be there yet, for keys are shown once", self.out.display())
        })?;
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} keys, {per_sec}, {eta} left")?;
        let bar = ProgressBar::new(wishes.len() as u64).with_style(style);
        let mut failed = 0;
        for (line, wish) in &wishes {
            match self.issue(desk, wish).await {
                Ok(clear) => {
                    let written = json!({
                        "account": wish.email.as_str(),
                        "name": wish.name.as_str(),
                        "scope": wish.scope.name(),
                        "id": clear.key().id.as_str(),
                        "key": clear.expose(),
                    });
                    writeln!(out, "{written}").with_context(|| {
                        format!("{} cannot be written; the last key is lost, delete it", self.out.display())
                    })?;
                }
                Err(error @ StoreError::Refused(_)) => {
                    failed += 1;
                    bar.suspend(|| show::warning(&format!("line {line}: {error}")))?;
                }
                Err(outage) => return Err(outage).context("keys that were made so far are in the file"),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        show::line(&format!("{} keys are in {}.", wishes.len() - failed, self.out.display()))?;
        if failed > 0 {
            bail!("{failed} of {} keys were not issued; correct their lines and give those alone", wishes.len());
        }
        Ok(())
    }

    async fn issue(&self, desk: &Desk, wish: &Wish) -> Result<ClearKey, StoreError> {
        let account = match desk.store.account(&wish.email).await {
            Err(StoreError::Refused(Refused::UnknownAccount)) if self.create_accounts => {
                desk.store.create_account(&wish.email, domain::plan::FREE).await?
            }
            found => found?,
        };
        let clear = ClearKey::mint(random_byte);
        desk.store.issue(&account, By::Operator, &wish.name, wish.scope, &clear.key()).await?;
        Ok(clear)
    }
}

/// The wishes with the numbers of their lines: all of them, or none if one cannot be read.
fn read(file: &Path) -> Result<Vec<(usize, Wish)>> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let mut wishes = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(place, line)| (place + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wish = parse(line).with_context(|| {
            format!("line {number} of {} is not `email,scope,name`, such as you@example.com,geo,web", file.display())
        })?;
        wishes.push((number, wish));
    }
    ensure!(!wishes.is_empty(), "{} names no key; give a line `email,scope,name` for each", file.display());
    ensure!(wishes.len() <= LINES_MAX, "{} names more than {LINES_MAX} keys; split it", file.display());
    Ok(wishes)
}

fn parse(line: &str) -> Option<Wish> {
    let mut parts = line.splitn(3, ',').map(str::trim);
    let (email, scope, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Wish { email: Email::parse(email)?, scope: Scope::parse(scope)?, name: KeyName::parse(name)? })
}
