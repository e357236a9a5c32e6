//! The command line.

mod account;
mod admin_context;
mod audit;
mod bench;
mod check;
mod completions;
mod contract;
mod doctor;
mod explain_client;
mod geo;
mod issue;
mod key;
mod key_search;
mod ledger;
mod limits;
mod metrics_text;
mod migrate;
mod operator;
mod ops_client;
mod output;
mod parse;
mod plan;
mod ready;
mod restrict;
mod site;
mod top;

use std::path::PathBuf;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::cli::admin_context::AdminContext;
use crate::config::Config;
use crate::node;
use crate::telemetry::log;
use crate::telemetry::otlp::OtlpExporter;

/// Ipseity returns a caller's IP address, location, network and connection.
///
/// This program serves the API and the portal, and manages accounts, keys and geo databases. Built-in settings are overridden by a file passed with
/// --config and then by environment variables. `ipseity check` prints the effective settings.
#[derive(Parser)]
#[command(name = "ipseity", version, propagate_version = true, arg_required_else_help = true, max_term_width = 100, after_long_help = GETTING_STARTED)]
pub(crate) struct Cli {
    /// Configuration file (TOML) [env: IPSEITY_CONFIG]. It overrides the defaults; variables named IPSEITY__SECTION__SETTING override both.
    #[arg(long, global = true, value_name = "FILE", env = "IPSEITY_CONFIG", hide_env = true)]
    config: Option<PathBuf>,
    /// Print JSON: one object per line, and a line per item of a list. Warnings and errors stay text on standard error.
    #[arg(long, global = true)]
    json: bool,
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
    /// Logs go to standard error. SIGHUP reloads log settings, the portal's banner, certificates, geo databases and blocked networks. Before it exits, the service drains: it completes open
    /// requests and flushes usage to PostgreSQL. SIGTERM, SIGINT and SIGQUIT do this. With socket
    /// activation, a new process can take over the listening sockets first, so that an upgrade loses no request over TCP.
    Serve,
    /// Print and validate the effective settings.
    ///
    /// Passwords are not printed. With --peer, explains instead which client address a connection gets.
    Check(explain_client::ExplainClient),
    /// Check every dependency and report problems with suggested fixes.
    ///
    /// Checks Redis, PostgreSQL and its schema, clocks, certificates, geo data, open files, ports and proxies. It changes nothing and can run while
    /// the node serves. The exit code is 1 if there is an error; warnings do not change it. JSON has `check`, `severity` (ok, warning or error) and
    /// `message`.
    Doctor,
    /// Check whether a running node should receive requests.
    ///
    /// The exit code is 0 if it should, and 1 if it does not run, is draining, or can answer no request. Use it for health checks of containers.
    Ready(ready::ReadyCommand),
    /// Take a running node out of load balancers.
    ///
    /// /ready returns 503 until the drain ends, and the node answers requests meanwhile. A restart ends it too. To stop a node, send SIGTERM: it
    /// drains by itself.
    Drain(ready::DrainCommand),
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
    /// Run this before you start the first node of a new version. Nodes of the previous version can continue to serve, unless
    /// the notes of the version say otherwise.
    Migrate,
    /// Manage accounts.
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Manage keys.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// List changes of keys, accounts, plans and sites, newest first.
    ///
    /// Says who made each change: the owner, an operator by name, or the service. The name is that of the user who ran a command; set IPSEITY_OPERATOR
    /// for another. Events stay after their key or account is deleted, for `[retention] history_days`. Changes that are still open in
    /// PostgreSQL are waited for, so that --after leaves out none; the exit code is 1 if they are not complete after five seconds.
    #[command(
        after_long_help = "Examples:\n  ipseity audit --account you@example.com --limit 20\n  ipseity audit --since 2026-11-18T00:00:00Z --limit 100000 --json > audit.jsonl\n  ipseity audit --follow --json"
    )]
    Audit(audit::AuditCommand),
    /// Manage what is in Redis.
    #[command(subcommand)]
    Ledger(ledger::LedgerCommand),
    /// Manage plans.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// Manage sites with remote nodes.
    #[command(subcommand)]
    Site(site::SiteCommand),
    /// Manage the operators of the admin console.
    ///
    /// While there is none, a node writes a link to its log, and its first visitor becomes admin.
    #[command(subcommand)]
    Operator(operator::OperatorCommand),
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
                runtime.block_on(command.run(&config, self.config, self.json))
            }
        }
    }
}

impl ConfiguredCommand {
    async fn run(self, config: &Config, config_file: Option<PathBuf>, json: bool) -> Result<()> {
        match self {
            Self::Serve => {
                let otlp_exporter = OtlpExporter::start(&config.otlp)?;
                let log_control = log::init_logging(&config.log, otlp_exporter.as_ref())?;
                #[cfg(feature = "failpoints")]
                ipseity_api::arm_failpoints(std::env::var("IPSEITY_FAILPOINTS").unwrap_or_default());
                let result = node::run(config, config_file, log_control).await;
                if let Some(otlp_exporter) = otlp_exporter {
                    otlp_exporter.shutdown().await;
                }
                result
            }
            Self::Check(explain) => check::run(config, &explain, json),
            Self::Doctor => doctor::run(config, json).await,
            Self::Ready(ready) => ready.run(config, json).await,
            Self::Drain(drain) => drain.run(config, json).await,
            Self::Top(top) => top.run(config, json).await,
            Self::Bench(bench) => bench.run(config, json).await,
            Self::Migrate => migrate::run(config, json).await,
            Self::Account(command) => command.run(&AdminContext::open(config)?, json).await,
            Self::Key(command) => command.run(&AdminContext::open(config)?, json).await,
            Self::Audit(audit) => audit.run(&AdminContext::open(config)?, json).await,
            Self::Ledger(command) => command.run(&AdminContext::open(config)?, json).await,
            Self::Plan(command) => command.run(&AdminContext::open(config)?, json).await,
            Self::Site(command) => command.run(config, json).await,
            Self::Operator(command) => command.run(config, json).await,
            Self::Geo(command) => command.run(config, json).await,
        }
    }
}
