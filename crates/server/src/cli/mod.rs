//! The command line.

mod account;
mod admin_context;
mod audit;
mod bench;
mod check;
mod completions;
mod doctor;
mod explain_client;
mod geo;
mod issue;
mod key;
mod key_search;
mod metrics_text;
mod ops_client;
mod output;
mod parse;
mod plan;
mod restrict;
mod site;
mod top;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::cli::admin_context::AdminContext;
use crate::config::Config;
use crate::node;
use crate::node::backends::background_store;
use crate::telemetry::log;
use crate::telemetry::otlp::OtlpExporter;

/// Ipseity returns a caller's IP address, location, network and connection.
///
/// This program serves the API and the portal, and manages accounts, keys and geo databases. Built-in settings are overridden by a file passed with
/// --config and then by environment variables. `ipseity check` prints the effective settings.
#[derive(Parser)]
#[command(name = "ipseity", version, propagate_version = true, arg_required_else_help = true, max_term_width = 100, after_long_help = GETTING_STARTED)]
pub(crate) struct Cli {
    /// Configuration file (TOML). It overrides the defaults; variables named IPSEITY__SECTION__SETTING override both.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: CliCommand,
}

const GETTING_STARTED: &str = "Getting started:
  ipseity check                                     # validate the configuration
  ipseity migrate                                   # create the tables
  ipseity doctor                                    # check every dependency
  ipseity serve
  ipseity account create --email you@example.com
  ipseity key issue --account you@example.com --scope full --name laptop";

#[derive(Subcommand)]
enum CliCommand {
    #[command(flatten)]
    Configured(ConfiguredCommand),
    /// Print a shell completion script.
    #[command(after_long_help = "Example:\n  ipseity completions bash > /etc/bash_completion.d/ipseity")]
    Completions {
        /// Shell to generate the script for.
        shell: Shell,
    },
    /// Write a man page for each command.
    #[command(after_long_help = "Example:\n  ipseity man /usr/local/share/man/man1")]
    Man {
        /// Directory for the pages; created if missing.
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum ConfiguredCommand {
    /// Run the service until SIGTERM.
    ///
    /// Logs go to standard error. Before it exits, the service drains: it completes open requests and flushes usage to PostgreSQL. With socket
    /// activation, a new process can take over the listening sockets first, so that an upgrade loses no request over TCP.
    Serve,
    /// Print and validate the effective settings.
    ///
    /// Passwords are not printed. With --peer, explains instead which client address a connection gets.
    Check(explain_client::ExplainClient),
    /// Check every dependency and report problems with suggested fixes.
    ///
    /// Checks Redis, PostgreSQL and its schema, clocks, certificates, geo data, open files, ports and proxies. It changes nothing and can run while
    /// the node serves. The exit code is 1 if there is an error; warnings do not change it.
    Doctor(doctor::DoctorCommand),
    /// Show live metrics of a running node.
    ///
    /// Shows rates, outcomes, latencies, tasks, connections and geo data. They are read from the ops listener every two seconds, until you press
    /// Ctrl-C.
    Top(top::TopCommand),
    /// Send lookups to a running service at a steady rate and measure it.
    ///
    /// Reports statuses and latencies. The requests count toward the quotas of the keys. A key is paused after more than 300 requests in 60 seconds,
    /// so higher rates need several keys.
    #[command(after_long_help = "Example:\n  ipseity bench --keys keys.jsonl --rate 50 --seconds 20 --requests 1000")]
    Bench(bench::BenchCommand),
    /// Update the database schema.
    ///
    /// Run this before you start the first node of a new version. Nodes of the previous version can continue to serve.
    Migrate,
    /// Manage accounts.
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Manage keys.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// List key changes, newest first.
    ///
    /// Actions are issued, renamed, deactivated, reactivated, paused, resumed, rotated and previous_revoked. The actor is the owner, an operator or
    /// the service. Deleting a key deletes its events.
    #[command(after_long_help = "Example:\n  ipseity audit --account you@example.com --limit 20")]
    Audit(audit::AuditCommand),
    /// Manage plans.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Manage sites with remote nodes.
    #[command(subcommand)]
    Site(site::SiteCommand),
    /// Show and update geo databases.
    #[command(subcommand)]
    Geo(geo::GeoCommand),
}

impl Cli {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            // Completions and man pages work without a valid configuration.
            CliCommand::Completions { shell } => completions::print_completions(shell, Self::command()),
            CliCommand::Man { dir } => completions::write_man_pages(&dir, Self::command()),
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
                background_store(config, "ipseity-migrate")?
                    .migrate()
                    .await
                    .context("failed to update the schema (it is unchanged)")?;
                output::print_line("The schema is up to date.")
            }
            Self::Account(command) => command.run(&AdminContext::open(config)?).await,
            Self::Key(command) => command.run(&AdminContext::open(config)?).await,
            Self::Audit(audit) => audit.run(&AdminContext::open(config)?).await,
            Self::Plan(command) => command.run(&AdminContext::open(config)?).await,
            Self::Site(command) => command.run(config).await,
            Self::Geo(command) => command.run(config).await,
        }
    }
}
