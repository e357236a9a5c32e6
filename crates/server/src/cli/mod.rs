//! The command line.

mod account;
mod audit;
mod bench;
mod check;
mod completions;
mod doctor;
mod explain_client;
mod geo;
mod issue_many;
mod key;
mod key_search;
mod metrics_text;
mod ops_client;
mod output;
mod plan;
mod top;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::config::Config;
use crate::node;
use crate::node::{background_ledger, background_store};
use crate::telemetry::log;
use crate::telemetry::otlp::OtlpExporter;

/// Ipseity tells a caller who it is on the network.
///
/// One binary serves the API and the portal, and looks after both: it validates its configuration, migrates its database, and manages accounts,
/// keys and geo data. Settings stand in a file (`--config`) and in the environment; `ipseity check` prints them all as they take effect.
#[derive(Parser)]
#[command(name = "ipseity", version, propagate_version = true, arg_required_else_help = true, max_term_width = 100, after_long_help = GETTING_STARTED)]
pub(crate) struct Cli {
    /// Settings over the built-in defaults (TOML); the environment's IPSEITY__SECTION__SETTING wins over both.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: CliCommand,
}

/// What to type first.
const GETTING_STARTED: &str = "To begin:
  ipseity check                                     is the configuration valid?
  ipseity migrate                                   make the tables
  ipseity doctor                                    is everything there that a node leans on?
  ipseity serve
  ipseity account create --email you@example.com
  ipseity key issue --account you@example.com --scope full --name laptop";

#[derive(Subcommand)]
enum CliCommand {
    #[command(flatten)]
    Configured(ConfiguredCommand),
    /// Print what a shell needs to complete commands.
    #[command(after_long_help = "Example:\n  ipseity completions bash > /etc/bash_completion.d/ipseity")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write a manual page for each command.
    #[command(after_long_help = "Example:\n  ipseity man /usr/local/share/man/man1")]
    Man {
        /// The folder for the pages.
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum ConfiguredCommand {
    /// Run the service until SIGTERM.
    ///
    /// It logs to standard error, and drains before it ends: open requests are answered, counts are rolled up. A second process may take its
    /// sockets over before that, so that nobody is turned away.
    Serve,
    /// Validate the configuration and print it as it takes effect, without passwords; or explain who a caller is taken for.
    Check(explain_client::ExplainClient),
    /// Look at everything that a node leans on, and say in one sentence each what is wrong and what to do.
    ///
    /// Both stores, the clocks, the schema, certificates, geo data, open files, ports and proxies. Nothing is changed, and a node may be serving
    /// meanwhile. The exit code is 1 if anything is wrong; notes are worth knowing and fail nobody.
    Doctor(doctor::DoctorCommand),
    /// Show a running node: rates, outcomes, latencies, stores, connections, geo data.
    ///
    /// Read from the metrics of its private listener every two seconds, until Ctrl-C.
    Top(top::TopCommand),
    /// Ask a running service at a steady rate, and say how it answered and how fast.
    ///
    /// The requests are real: they are charged to the keys. More than 300 a minute would pause a key, so that many need several keys.
    #[command(after_long_help = "Example:\n  ipseity bench --keys keys.jsonl --rate 50 --seconds 20 --requests 1000")]
    Bench(bench::BenchCommand),
    /// Bring the database's schema up to date.
    ///
    /// Nodes of the version before may go on meanwhile. Run it before the first node of a new version starts.
    Migrate,
    /// Accounts: create, invite, show, list, change the plan, delete.
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Keys: issue, find, list, deactivate, reactivate, resume, roll, delete.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Show what happened to keys: when, what, and by whom; newest first.
    ///
    /// Every change of a key leaves a line: issued, renamed, deactivated, reactivated, paused, resumed, rolled, retired; by its owner, an operator, or
    /// the service. A deleted key takes its lines with it.
    #[command(after_long_help = "Example:\n  ipseity audit --account you@example.com --count 20")]
    Audit(audit::AuditCommand),
    /// Plans: list, add.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Geo databases: show them, bring them up to date.
    #[command(subcommand)]
    Geo(geo::GeoCommand),
}

impl Cli {
    /// Does what the line says.
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            // These need no configuration.
            CliCommand::Completions { shell } => completions::print_completions(shell),
            CliCommand::Man { dir } => completions::write_man_pages(&dir),
            CliCommand::Configured(command) => {
                let config = Config::load(self.config.as_deref())?;
                let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
                runtime.block_on(command.run(&config))
            }
        }
    }
}

impl ConfiguredCommand {
    async fn run(self, config: &Config) -> Result<()> {
        match self {
            Self::Serve => {
                let otlp_exporter = OtlpExporter::start(&config.otlp)?;
                let log_control = log::init_logging(&config.log, otlp_exporter.as_ref())?;
                #[cfg(feature = "failpoints")]
                ipseity_api::arm_failpoints(std::env::var("IPSEITY_FAILPOINTS").unwrap_or_default());
                let result = node::run(config, log_control).await;
                if let Some(otlp_exporter) = otlp_exporter {
                    otlp_exporter.shutdown().await;
                }
                result
            }
            Self::Check(explain) => check::run(config, &explain),
            Self::Doctor(doctor) => doctor.run(config).await,
            Self::Top(top) => top.run(config).await,
            Self::Bench(bench) => bench.run(config).await,
            Self::Migrate => {
                background_store(config, "ipseity-migrate")?.migrate().await.context("the schema is as it was")?;
                output::print_line("The schema is up to date.")
            }
            Self::Account(command) => command.run(&AdminContext::open(config)?).await,
            Self::Key(command) => command.run(&AdminContext::open(config)?).await,
            Self::Audit(audit) => audit.run(&AdminContext::open(config)?).await,
            Self::Plan(command) => command.run(&AdminContext::open(config)?).await,
            Self::Geo(command) => command.run(config).await,
        }
    }
}

/// What commands work with.
struct AdminContext {
    store: ipseity_store::Store,
    ledger: ipseity_ledger::Ledger,
    base_url: String,
}

impl AdminContext {
    fn open(config: &Config) -> Result<Self> {
        Ok(Self {
            store: background_store(config, "ipseity-command")?,
            ledger: background_ledger(config)?,
            base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        })
    }

    /// Brings a committed change to the counter store. A store that is away is no failure: the change is made, and a node's relay applies it.
    async fn publish_change(&self, change: &ipseity_domain::KeyChange) -> Result<()> {
        if let Err(error) = crate::tasks::sync::publish_change(&self.store, &self.ledger, change).await {
            output::print_warning(&format!(
                "saved, but not yet in force: {error:#}. A running node applies it as soon as it can."
            ))?;
        }
        Ok(())
    }

    /// Writes down a pause of this key that only the counter store knows of yet, so that there is something to resume.
    async fn record_pauses(&self, id: ipseity_domain::KeyId) -> Result<()> {
        match self.ledger.unrecorded_pauses_of(id).await {
            Ok(pauses) => crate::tasks::sync::record_pauses(&self.store, &self.ledger, &pauses).await,
            Err(error) => {
                output::print_warning(&format!("{error:#}. A pause of the last seconds may not be written down yet."))
            }
        }
    }
}
