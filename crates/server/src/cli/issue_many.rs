//! `ipseity key issue-all`: many keys at once.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ipseity_domain::account::{EmailAddress, KeyName};
use ipseity_domain::{PlaintextKey, Scope};
use ipseity_store::{Actor, StoreError, StoreRefusal};
use serde_json::json;

use crate::cli::key::random_byte;
use crate::cli::{AdminContext, output};

/// Lines of a file: a slip of the hand should not make a million keys.
const KEY_REQUESTS_MAX: usize = 100_000;

#[derive(Args)]
pub(super) struct IssueMany {
    /// A file with a line `email,scope,name` for each key; empty lines and those that begin with # are left out.
    #[arg(value_name = "FILE")]
    from: PathBuf,
    /// Where the new keys go, one JSON object a line with `account`, `name`, `scope`, `id` and `key`. The file must be new; only you may read it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Make accounts that are missing, on the free plan.
    #[arg(long)]
    create_accounts: bool,
}

struct KeyRequest {
    email: EmailAddress,
    scope: Scope,
    name: KeyName,
}

impl IssueMany {
    pub(super) async fn run(&self, admin: &AdminContext) -> Result<()> {
        let requests = read_key_requests(&self.from)?;
        // Opened before the first key is made: a key that cannot be written down is lost.
        let opened = File::options().write(true).create_new(true).mode(0o600).open(&self.out);
        let mut out = opened.with_context(|| {
            format!("{} cannot be made; it must not be there yet, for keys are shown once", self.out.display())
        })?;
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len} keys, {per_sec}, {eta} left")?;
        let progress = ProgressBar::new(requests.len() as u64).with_style(style);
        let mut failed = 0;
        for (line_number, request) in &requests {
            match self.issue_key(admin, request).await {
                Ok(clear_key) => {
                    let record = json!({
                        "account": request.email.as_str(),
                        "name": request.name.as_str(),
                        "scope": request.scope.name(),
                        "id": clear_key.to_api_key().id.as_str(),
                        "key": clear_key.expose(),
                    });
                    writeln!(out, "{record}").with_context(|| {
                        format!("{} cannot be written; the last key is lost, delete it", self.out.display())
                    })?;
                }
                Err(error @ StoreError::Refused(_)) => {
                    failed += 1;
                    progress.suspend(|| output::print_warning(&format!("line {line_number}: {error}")))?;
                }
                Err(error) => return Err(error).context("keys that were made so far are in the file"),
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        output::print_line(&format!("{} keys are in {}.", requests.len() - failed, self.out.display()))?;
        if failed > 0 {
            bail!("{failed} of {} keys were not issued; correct their lines and give those alone", requests.len());
        }
        Ok(())
    }

    async fn issue_key(&self, admin: &AdminContext, request: &KeyRequest) -> Result<PlaintextKey, StoreError> {
        let account = match admin.store.accounts().get_by_email(&request.email).await {
            Err(StoreError::Refused(StoreRefusal::UnknownAccount)) if self.create_accounts => {
                admin.store.accounts().create(&request.email, ipseity_domain::plan::FREE_PLAN).await?
            }
            found => found?,
        };
        let clear_key = PlaintextKey::generate(random_byte);
        admin
            .store
            .keys()
            .create(&account, Actor::Operator, &request.name, request.scope, &clear_key.to_api_key())
            .await?;
        Ok(clear_key)
    }
}

/// The wishes with the numbers of their lines: all of them, or none if one cannot be read.
fn read_key_requests(file: &Path) -> Result<Vec<(usize, KeyRequest)>> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let mut requests = Vec::new();
    for (line_number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let request = parse_key_request(line).with_context(|| {
            format!(
                "line {line_number} of {} is not `email,scope,name`, such as you@example.com,geo,web",
                file.display()
            )
        })?;
        requests.push((line_number, request));
    }
    ensure!(!requests.is_empty(), "{} names no key; give a line `email,scope,name` for each", file.display());
    ensure!(requests.len() <= KEY_REQUESTS_MAX, "{} names more than {KEY_REQUESTS_MAX} keys; split it", file.display());
    Ok(requests)
}

fn parse_key_request(line: &str) -> Option<KeyRequest> {
    let mut parts = line.splitn(3, ',').map(str::trim);
    let (email, scope, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(KeyRequest { email: EmailAddress::parse(email)?, scope: Scope::parse(scope)?, name: KeyName::parse(name)? })
}
