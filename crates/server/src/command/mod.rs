//! The command line.

mod account;
mod check;
mod doctor;
mod explain;
mod geo;
mod key;
mod plan;
mod private;
mod reading;
mod show;
mod top;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::assemble::{background_ledger, background_store};
use crate::config::Config;
use crate::{assemble, telemetry};

/// Ipseity tells a caller who it is on the network.
#[derive(Parser)]
#[command(name = "ipseity", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Line {
    /// Settings over the built-in defaults (TOML); the environment's IPSEITY__SECTION__SETTING wins over both.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service until SIGTERM.
    Serve,
    /// Validate the configuration and print it as it takes effect, without passwords; or explain who a caller is taken for.
    Check(explain::Explain),
    /// Look at everything that a node leans on, and say in one sentence each what is wrong and what to do.
    Doctor(doctor::Doctor),
    /// Show a running node: rates, outcomes, latencies, stores, connections, geo data.
    Top(top::Top),
    /// Bring the database's schema up to date.
    Migrate,
    /// Accounts: create, invite, show, list, change the plan.
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Keys: issue, list, deactivate, reactivate, resume, roll, delete.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Plans: list, add.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Geo databases: show them, bring them up to date.
    #[command(subcommand)]
    Geo(geo::GeoCommand),
}

impl Line {
    /// Does what the line says.
    pub(crate) fn run(self) -> Result<()> {
        let config = Config::open(self.config.as_deref())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            match self.command {
                Command::Serve => {
                    let levels = telemetry::start(&config.log)?;
                    #[cfg(feature = "failpoints")]
                    api::arm_failpoints(std::env::var("IPSEITY_FAILPOINTS").unwrap_or_default());
                    assemble::run(&config, levels).await
                }
                Command::Check(explain) => check::run(&config, &explain),
                Command::Doctor(doctor) => doctor.run(&config).await,
                Command::Top(top) => top.run(&config).await,
                Command::Migrate => {
                    background_store(&config, "ipseity-migrate")?.migrate().await.context("the schema is as it was")?;
                    show::line("The schema is up to date.")
                }
                Command::Account(command) => command.run(&Desk::open(&config)?).await,
                Command::Key(command) => command.run(&Desk::open(&config)?).await,
                Command::Plan(command) => command.run(&Desk::open(&config)?).await,
                Command::Geo(command) => command.run(&config).await,
            }
        })
    }
}

/// What commands work with.
struct Desk {
    store: store::Store,
    ledger: ledger::Ledger,
    base_url: String,
}

impl Desk {
    fn open(config: &Config) -> Result<Self> {
        Ok(Self {
            store: background_store(config, "ipseity-command")?,
            ledger: background_ledger(config)?,
            base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        })
    }

    /// Brings a committed change to the counter store. A store that is away is no failure: the change is made, and a node's relay applies it.
    async fn publish(&self, change: &domain::Change) -> Result<()> {
        if let Err(error) = crate::publish::publish_own(&self.store, &self.ledger, change).await {
            show::warning(&format!(
                "saved, but not yet in force: {error:#}. A running node applies it as soon as it can."
            ))?;
        }
        Ok(())
    }

    /// Writes down a pause of this key that only the counter store knows of yet, so that there is something to resume.
    async fn settle(&self, id: domain::KeyId) -> Result<()> {
        match self.ledger.pending(id).await {
            Ok(pauses) => crate::publish::settle(&self.store, &self.ledger, &pauses).await,
            Err(error) => {
                show::warning(&format!("{error:#}. A pause of the last seconds may not be written down yet."))
            }
        }
    }
}
