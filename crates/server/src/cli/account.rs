//! `ipseity account …`

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use ipseity_domain::KeyChange;
use ipseity_domain::account::EmailAddress;
use ipseity_store::Account;
use serde_json::{Value, json};

use crate::cli::{AdminContext, output};

/// Accounts read from the database at a time.
const PAGE_ROWS: i64 = 1000;

#[derive(Subcommand)]
pub(super) enum AccountCommand {
    /// Create an account.
    ///
    /// It can hold ten keys. Nobody can sign in to it until its owner has a password; `ipseity account invite` prints a link to choose one.
    #[command(after_long_help = "Example:\n  ipseity account create --email you@example.com --plan free")]
    Create {
        /// The owner's e-mail address.
        #[arg(long)]
        email: String,
        /// The plan; see `ipseity plan list`.
        #[arg(long, default_value = ipseity_domain::plan::FREE_PLAN)]
        plan: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a link that lets a person choose the password of an account, new or not; it works once, for 7 days.
    ///
    /// Hand it over as you would a password. The account is made when the link is used, if it is not there yet.
    Invite {
        /// The person's e-mail address.
        #[arg(long)]
        email: String,
    },
    /// Show an account.
    Show {
        /// The owner's e-mail address.
        #[arg(long)]
        email: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List all accounts, or those whose address holds a text.
    #[command(after_long_help = "Example:\n  ipseity account list --search @example.com")]
    List {
        /// Only accounts whose e-mail address holds this text, in whatever case; 1,000 at the most.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// Print JSON, one account a line.
        #[arg(long)]
        json: bool,
    },
    /// Give an account another plan; its keys have the new limit from the next request on.
    Plan {
        /// The owner's e-mail address.
        #[arg(long)]
        email: String,
        /// The plan; see `ipseity plan list`.
        #[arg(long)]
        plan: String,
    },
    /// Delete an account with its keys, their usage and their history, for good.
    ///
    /// Its keys are refused from the next request on. Nothing of it can be brought back but from a backup.
    Delete {
        /// The owner's e-mail address.
        #[arg(long)]
        email: String,
        /// Do it; without this, only say what would be deleted.
        #[arg(long)]
        yes: bool,
    },
}

impl AccountCommand {
    pub(super) async fn run(self, admin: &AdminContext) -> Result<()> {
        match self {
            Self::Create { email, plan, json } => {
                print_account(&admin.store.accounts().create(&parse_email(&email)?, &plan).await?, json)
            }
            Self::Invite { email } => {
                let (token, digest) = ipseity_portal::generate_invitation();
                admin.store.email_tokens().create_invite(&parse_email(&email)?, &digest).await?;
                output::print_line(&format!("{}/link/{token}", admin.base_url))
            }
            Self::Show { email, json } => print_account(&find_account(admin, &email).await?, json),
            Self::List { search: Some(text), json } => list_matching_accounts(admin, &text, json).await,
            Self::List { search: None, json } => list_accounts(admin, json).await,
            Self::Plan { email, plan } => {
                let account = find_account(admin, &email).await?;
                for id in admin.store.accounts().set_plan(&account, &plan).await? {
                    if let Some(key_record) = admin.store.keys().find_record(id).await? {
                        admin.publish_change(&KeyChange::Updated(key_record)).await?;
                    }
                }
                output::print_line(&format!("{} has the plan {plan}.", account.email))
            }
            Self::Delete { email, yes } => delete_account(admin, &find_account(admin, &email).await?, yes).await,
        }
    }
}

/// Finds an account by what was typed.
pub(super) async fn find_account(admin: &AdminContext, email: &str) -> Result<Account> {
    Ok(admin.store.accounts().get_by_email(&parse_email(email)?).await?)
}

fn parse_email(text: &str) -> Result<EmailAddress> {
    EmailAddress::parse(text).with_context(|| format!("{text:?} is not an e-mail address"))
}

fn account_json(account: &Account) -> Value {
    json!({
        "id": account.id,
        "email": account.email,
        "plan": account.plan,
        "created_at": output::format_rfc3339(account.created_s),
    })
}

fn account_row(account: &Account) -> [String; 4] {
    [account.id.to_string(), account.email.clone(), account.plan.clone(), output::format_utc(account.created_s)]
}

const ACCOUNT_COLUMNS: [&str; 4] = ["ID", "E-MAIL", "PLAN", "CREATED (UTC)"];

fn print_account(account: &Account, json: bool) -> Result<()> {
    if json {
        output::print_json(&account_json(account))
    } else {
        output::print_table(ACCOUNT_COLUMNS, &[account_row(account)])
    }
}

async fn delete_account(admin: &AdminContext, account: &Account, is_confirmed: bool) -> Result<()> {
    let count = admin.store.keys().list(account.id).await?.len();
    let keys = if count == 1 { "1 key".to_owned() } else { format!("{count} keys") };
    ensure!(is_confirmed, "{} and its {keys} would be deleted for good; add --yes if that is meant", account.email);
    for id in admin.store.accounts().delete(account.id).await? {
        admin.publish_change(&KeyChange::Deleted(id)).await?;
    }
    output::print_line(&format!("{} and its {keys} are deleted.", account.email))
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
