//! `ipseity key issue`

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ipseity_domain::account::{EmailAddress, KeyName};
use ipseity_domain::plan::FREE_PLAN;
use ipseity_domain::{PlaintextKey, Restrictions, Scope};
use ipseity_store::{Account, Actor, StoreError, StoreRefusal};
use serde_json::json;

use crate::cli::admin_context::{AdminContext, parse_email};
use crate::cli::output;
use crate::cli::parse::parse_scope;
use crate::cli::restrict::{RestrictionArgs, print_warnings};

/// Limits the damage of a mistaken input file.
const LINES_MAX: usize = 100_000;

#[derive(Args)]
pub(super) struct IssueCommand {
    /// Email address of the account's owner.
    #[arg(long, value_name = "EMAIL", required_unless_present = "from")]
    account: Option<String>,
    /// Fields that the key can return: ip, geo or full.
    #[arg(long, value_parser = parse_scope, required_unless_present = "from")]
    scope: Option<Scope>,
    /// A label to recognize the key.
    #[arg(long, required_unless_present = "from")]
    name: Option<String>,
    /// Issue a key for each line `email,scope,name` of this file. Empty lines and lines that start with # are skipped.
    #[arg(long, value_name = "FILE", requires = "out", conflicts_with_all = ["account", "scope", "name"])]
    from: Option<PathBuf>,
    /// New file for the keys of --from, readable only by you: one JSON object per line with `account`, `name`, `scope`, `id` and `key`.
    #[arg(long, value_name = "FILE", requires = "from")]
    out: Option<PathBuf>,
    /// Create missing accounts on the free plan.
    #[arg(long)]
    create_accounts: bool,
    #[command(flatten)]
    restrictions: RestrictionArgs,
}

/// What all keys of a file have in common.
struct NewKeyOptions {
    create_accounts: bool,
    restrictions: Restrictions,
}

struct KeyRequest {
    email: EmailAddress,
    scope: Scope,
    name: KeyName,
}

impl IssueCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        match self {
            Self { from: Some(from), out: Some(out), create_accounts, restrictions, .. } => {
                let options = NewKeyOptions { create_accounts, restrictions: restrictions.into_restrictions()? };
                issue_from_file(admin, &from, &out, &options, json).await
            }
            Self {
                account: Some(account),
                scope: Some(scope),
                name: Some(name),
                create_accounts,
                restrictions,
                ..
            } => {
                let restrictions = restrictions.into_restrictions()?;
                let name =
                    KeyName::parse(&name).context("a key name has 1 to 100 characters and no control characters")?;
                let account = if create_accounts {
                    find_or_create_account(admin, &parse_email(&account)?).await?
                } else {
                    admin.find_account(&account).await?
                };
                let key = create_key(admin, &account, scope, &name, &restrictions).await?;
                // Before anything that can fail: a key that is not printed is lost.
                print_plaintext_key(&key, json)?;
                print_warnings(admin, &restrictions, account.daily_limit, account.burst_limit).await
            }
            Self { .. } => bail!("pass --account, --scope and --name, or --from and --out"),
        }
    }
}

pub(super) fn print_plaintext_key(key: &PlaintextKey, json: bool) -> Result<()> {
    let id = key.to_api_key().id;
    if json {
        return output::print_json(&json!({ "id": id.as_str(), "key": key.expose() }));
    }
    output::print_line(&format!("Key {id}. Copy it now; you won't see it again:\n\n    {}", key.expose()))
}

pub(super) fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("the system provides random bytes");
    byte[0]
}

async fn create_key(
    admin: &AdminContext,
    account: &Account,
    scope: Scope,
    name: &KeyName,
    restrictions: &Restrictions,
) -> Result<PlaintextKey, StoreError> {
    let key = PlaintextKey::generate(random_byte);
    admin.store.keys().create(account, Actor::Operator, name, scope, &key.to_api_key(), restrictions).await?;
    Ok(key)
}

async fn issue_from_file(
    admin: &AdminContext,
    from: &Path,
    out: &Path,
    options: &NewKeyOptions,
    json: bool,
) -> Result<()> {
    let requests = read_key_requests(from)?;
    // Opened before the first key is created: a key that cannot be written is lost.
    let opened = File::options().write(true).create_new(true).mode(0o600).open(out);
    let mut file = opened
        .with_context(|| format!("failed to create {}. Choose a file that does not exist yet.", out.display()))?;
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} keys, {per_sec}, {eta} left")?;
    let progress = ProgressBar::new(requests.len() as u64).with_style(style);
    let mut failed = 0;
    for (line_number, request) in &requests {
        match issue_requested_key(admin, request, options).await {
            Ok(key) => {
                let record = json!({
                    "account": request.email.as_str(),
                    "name": request.name.as_str(),
                    "scope": request.scope.name(),
                    "id": key.to_api_key().id.as_str(),
                    "key": key.expose(),
                });
                writeln!(file, "{record}")
                    .with_context(|| format!("failed to write {}. The last key is lost; delete it.", out.display()))?;
            }
            Err(error @ StoreError::Refused(_)) => {
                failed += 1;
                progress.suspend(|| output::print_warning(&format!("line {line_number}: {error}")))?;
            }
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("failed to issue all keys. {} has those issued so far.", out.display()));
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let issued = requests.len() - failed;
    let value = json!({ "file": out.display().to_string(), "issued": issued, "failed": failed });
    output::print_result(json, &value, &format!("Wrote {issued} keys to {}.", out.display()))?;
    ensure!(
        failed == 0,
        "{failed} of {} keys were not issued. Fix their lines and run again with those only.",
        requests.len()
    );
    Ok(())
}

async fn issue_requested_key(
    admin: &AdminContext,
    request: &KeyRequest,
    options: &NewKeyOptions,
) -> Result<PlaintextKey, StoreError> {
    let account = if options.create_accounts {
        find_or_create_account(admin, &request.email).await?
    } else {
        admin.store.accounts().get_by_email(&request.email).await?
    };
    create_key(admin, &account, request.scope, &request.name, &options.restrictions).await
}

async fn find_or_create_account(admin: &AdminContext, email: &EmailAddress) -> Result<Account, StoreError> {
    match admin.store.accounts().get_by_email(email).await {
        Err(StoreError::Refused(StoreRefusal::UnknownAccount)) => admin.store.accounts().create(email, FREE_PLAN).await,
        found => found,
    }
}

/// Every request with its line number. One malformed line fails the whole file.
fn read_key_requests(file: &Path) -> Result<Vec<(usize, KeyRequest)>> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
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
    ensure!(!requests.is_empty(), "{} is empty. Add a line `email,scope,name` for each key.", file.display());
    ensure!(requests.len() <= LINES_MAX, "{} has more than {LINES_MAX} lines. Split it.", file.display());
    Ok(requests)
}

fn parse_key_request(line: &str) -> Option<KeyRequest> {
    let mut parts = line.splitn(3, ',').map(str::trim);
    let (email, scope, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(KeyRequest { email: EmailAddress::parse(email)?, scope: Scope::parse(scope)?, name: KeyName::parse(name)? })
}
