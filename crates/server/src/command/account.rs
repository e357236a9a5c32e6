//! `ipseity account …`

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use domain::Change;
use domain::account::Email;
use serde_json::{Value, json};
use store::Account;

use super::{Desk, show};

/// Accounts read from the database at a time.
const PAGE: i64 = 1000;

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
        #[arg(long, default_value = domain::plan::FREE)]
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
    pub(super) async fn run(self, desk: &Desk) -> Result<()> {
        match self {
            Self::Create { email, plan, json } => {
                print(&desk.store.create_account(&read_email(&email)?, &plan).await?, json)
            }
            Self::Invite { email } => {
                let (token, digest) = portal::invitation();
                desk.store.invite(&read_email(&email)?, &digest).await?;
                show::line(&format!("{}/link/{token}", desk.base_url))
            }
            Self::Show { email, json } => print(&find(desk, &email).await?, json),
            Self::List { search: Some(text), json } => list_found(desk, &text, json).await,
            Self::List { search: None, json } => list(desk, json).await,
            Self::Plan { email, plan } => {
                let account = find(desk, &email).await?;
                for id in desk.store.set_plan(&account, &plan).await? {
                    if let Some(standing) = desk.store.find_standing(id).await? {
                        desk.publish(&Change::Stands(standing)).await?;
                    }
                }
                show::line(&format!("{} has the plan {plan}.", account.email))
            }
            Self::Delete { email, yes } => delete(desk, &find(desk, &email).await?, yes).await,
        }
    }
}

/// Finds an account by what was typed.
pub(super) async fn find(desk: &Desk, email: &str) -> Result<Account> {
    Ok(desk.store.account(&read_email(email)?).await?)
}

fn read_email(text: &str) -> Result<Email> {
    Email::parse(text).with_context(|| format!("{text:?} is not an e-mail address"))
}

fn as_json(account: &Account) -> Value {
    json!({
        "id": account.id,
        "email": account.email,
        "plan": account.plan,
        "created_at": show::timestamp(account.created_s),
    })
}

fn as_row(account: &Account) -> [String; 4] {
    [account.id.to_string(), account.email.clone(), account.plan.clone(), show::time(account.created_s)]
}

const HEAD: [&str; 4] = ["ID", "E-MAIL", "PLAN", "CREATED (UTC)"];

fn print(account: &Account, json: bool) -> Result<()> {
    if json { show::json(&as_json(account)) } else { show::table(HEAD, &[as_row(account)]) }
}

async fn delete(desk: &Desk, account: &Account, is_meant: bool) -> Result<()> {
    let count = desk.store.keys(account.id).await?.len();
    let keys = if count == 1 { "1 key".to_owned() } else { format!("{count} keys") };
    ensure!(is_meant, "{} and its {keys} would be deleted for good; add --yes if that is meant", account.email);
    for id in desk.store.delete_account(account.id).await? {
        desk.publish(&Change::Gone(id)).await?;
    }
    show::line(&format!("{} and its {keys} are deleted.", account.email))
}

async fn list_found(desk: &Desk, text: &str, json: bool) -> Result<()> {
    let found = desk.store.search_accounts(text, PAGE).await?;
    if json {
        return found.iter().try_for_each(|account| show::json(&as_json(account)));
    }
    show::table(HEAD, &found.iter().map(as_row).collect::<Vec<_>>())
}

async fn list(desk: &Desk, json: bool) -> Result<()> {
    let mut last = 0;
    loop {
        let page = desk.store.accounts_after(last, PAGE).await?;
        if json {
            page.iter().try_for_each(|account| show::json(&as_json(account)))?;
        } else if !page.is_empty() || last == 0 {
            show::table(HEAD, &page.iter().map(as_row).collect::<Vec<_>>())?;
        }
        match page.last() {
            Some(account) => last = account.id,
            None => return Ok(()),
        }
    }
}
