//! `ipseity account …`

use anyhow::{Context, Result};
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
    /// List all accounts.
    List {
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
            Self::List { json } => list(desk, json).await,
            Self::Plan { email, plan } => {
                let account = find(desk, &email).await?;
                for id in desk.store.set_plan(&account, &plan).await? {
                    if let Some(standing) = desk.store.find_standing(id).await? {
                        desk.publish(&Change::Stands(standing)).await?;
                    }
                }
                show::line(&format!("{} has the plan {plan}.", account.email))
            }
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
