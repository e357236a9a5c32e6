//! `ipseity account …`

use anyhow::{Result, ensure};
use clap::Subcommand;
use ipseity_domain::KeyChange;
use ipseity_store::Account;
use serde_json::{Value, json};

use crate::cli::admin_context::{AdminContext, parse_email};
use crate::cli::limits::{AccountLimitsCommand, limits_json};
use crate::cli::output;

/// Accounts read from the database at a time.
const PAGE_ROWS: i64 = 1000;

#[derive(Subcommand)]
pub(super) enum AccountCommand {
    /// Create an account.
    ///
    /// Its plan limits the number of keys. Its owner can sign in after choosing a password; `ipseity account invite` prints a link for that.
    #[command(after_long_help = "Example:\n  ipseity account create --email you@example.com --plan free")]
    Create {
        /// Email address of the account's owner.
        #[arg(long)]
        email: String,
        /// Plan name; `ipseity plan list` lists them.
        #[arg(long, default_value = ipseity_domain::plan::FREE_PLAN)]
        plan: String,
    },
    /// Print a link to set the password of a new or existing account.
    ///
    /// The link works once and expires after 7 days. Treat it like a password. A missing account is created when the link is used.
    Invite {
        /// Email address of the person.
        #[arg(long)]
        email: String,
    },
    /// Show an account.
    Show {
        /// Email address of the account's owner.
        #[arg(long)]
        email: String,
    },
    /// List all accounts, or those whose email address contains the given text.
    #[command(after_long_help = "Example:\n  ipseity account list --search @example.com")]
    List {
        /// Only accounts whose email address contains this text; at most 1,000. Case is ignored.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Change the plan of an account.
    ///
    /// The new limit takes effect on the next request.
    Plan {
        /// Email address of the account's owner.
        #[arg(long)]
        email: String,
        /// Plan name; `ipseity plan list` lists them.
        #[arg(long)]
        plan: String,
    },
    /// Replace the limits that an account has instead of those of its plan.
    ///
    /// A limit that is not given is that of the plan. The limits take effect on the next request. Keys can have separate limits
    /// (`ipseity key limits`).
    #[command(after_long_help = "Example:\n  ipseity account limits --email you@example.com --daily-limit 50000")]
    Limits(AccountLimitsCommand),
    /// Turn off two-factor authentication for an owner who lost the second factor.
    ///
    /// Removes the authenticator app and the recovery codes. The owner gets an email. Make sure that it is the owner who asks.
    DisableTwoFactor {
        /// Email address of the account's owner.
        #[arg(long)]
        email: String,
    },
    /// Permanently delete an account with its keys, usage and history.
    ///
    /// Its keys are rejected starting with the next request. Only a backup can restore the account.
    Delete {
        /// Email address of the account's owner.
        #[arg(long)]
        email: String,
        /// Confirm the deletion. Without this flag, the command only reports what it would delete.
        #[arg(long)]
        yes: bool,
    },
}

impl AccountCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        match self {
            Self::Create { email, plan } => {
                print_account(&admin.store.accounts().create(&parse_email(&email)?, &plan).await?, json)
            }
            Self::Invite { email } => {
                let (token, digest) = ipseity_portal::generate_invitation();
                admin.store.email_tokens().create_invite(&parse_email(&email)?, &digest).await?;
                let url = format!("{}/link/{token}", admin.base_url);
                output::print_result(json, &json!({ "email": email, "url": url }), &url)
            }
            Self::Show { email } => print_account(&admin.find_account(&email).await?, json),
            Self::List { search: Some(text) } => list_matching_accounts(admin, &text, json).await,
            Self::List { search: None } => list_accounts(admin, json).await,
            Self::Plan { email, plan } => {
                let account = admin.find_account(&email).await?;
                let service = admin.service_for_change().await?;
                for id in admin.store.accounts().set_plan(&account, &plan).await? {
                    let change = admin.store.keys().find_change(id).await?;
                    admin.warn_unless_in_effect(&service.publish(change).await)?;
                }
                let text = format!("Changed the plan of {} to {plan}.", account.email);
                output::print_result(json, &account_json(&Account { plan, ..account }), &text)
            }
            Self::Limits(limits) => limits.run(admin, json).await,
            Self::DisableTwoFactor { email } => {
                let account = admin.find_account(&email).await?;
                admin.store.two_factor().disable(account.id, None).await?;
                let text = format!("Two-factor authentication is off for {}.", account.email);
                output::print_result(json, &json!({ "email": account.email, "two_factor": false }), &text)
            }
            Self::Delete { email, yes } => delete_account(admin, &admin.find_account(&email).await?, yes, json).await,
        }
    }
}

fn account_json(account: &Account) -> Value {
    json!({
        "id": account.id,
        "email": account.email,
        "plan": account.plan,
        "limits": limits_json(account.limits()),
        "created_at": output::format_rfc3339(account.created_s),
    })
}

fn account_row(account: &Account) -> [String; 4] {
    [account.id.to_string(), account.email.clone(), account.plan.clone(), output::format_utc(account.created_s)]
}

const ACCOUNT_COLUMNS: [&str; 4] = ["ID", "EMAIL", "PLAN", "CREATED (UTC)"];

fn print_account(account: &Account, json: bool) -> Result<()> {
    if json {
        output::print_json(&account_json(account))
    } else {
        output::print_table(ACCOUNT_COLUMNS, &[account_row(account)])
    }
}

async fn delete_account(admin: &AdminContext, account: &Account, is_confirmed: bool, json: bool) -> Result<()> {
    let count = admin.store.keys().list(account.id).await?.len();
    let keys = if count == 1 { "1 key".to_owned() } else { format!("{count} keys") };
    ensure!(is_confirmed, "{} and its {keys} would be permanently deleted. To confirm, add --yes.", account.email);
    let service = admin.service_for_change().await?;
    for id in admin.store.accounts().delete(account.id, None).await? {
        admin.warn_unless_in_effect(&service.publish(KeyChange::Deleted(id)).await)?;
    }
    let value = json!({ "email": account.email, "deleted": true, "deleted_keys": count });
    output::print_result(json, &value, &format!("Deleted {} and its {keys}.", account.email))
}

async fn list_matching_accounts(admin: &AdminContext, text: &str, json: bool) -> Result<()> {
    let found = admin.store.accounts().search(text, PAGE_ROWS).await?;
    if json {
        return found.iter().try_for_each(|account| output::print_json(&account_json(account)));
    }
    output::print_table(ACCOUNT_COLUMNS, &found.iter().map(account_row).collect::<Vec<_>>())
}

async fn list_accounts(admin: &AdminContext, json: bool) -> Result<()> {
    let mut last_id = 0;
    loop {
        let page = admin.store.accounts().list_after(last_id, PAGE_ROWS).await?;
        if json {
            page.iter().try_for_each(|account| output::print_json(&account_json(account)))?;
        } else if !page.is_empty() || last_id == 0 {
            output::print_table(ACCOUNT_COLUMNS, &page.iter().map(account_row).collect::<Vec<_>>())?;
        }
        match page.last() {
            Some(account) => last_id = account.id,
            None => return Ok(()),
        }
    }
}
