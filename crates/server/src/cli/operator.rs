//! `ipseity operator …`

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use ipseity_store::{OperatorName, OperatorRole, OperatorSummary, Store, StoreRefusal};
use serde_json::{Value, json};

use crate::cli::admin_context::operator_name;
use crate::cli::output;
use crate::config::Config;
use crate::node::backends::operator_store;
use crate::node::console::console_settings;

#[derive(Subcommand)]
pub(super) enum OperatorCommand {
    /// Add an operator, and print a link to sign in for the first time.
    ///
    /// The link works once and expires after 7 days. Treat it like a password.
    #[command(after_long_help = "Example:\n  ipseity operator add ada --role support")]
    Add {
        /// Name in the audit log: letters, digits, dots, hyphens, underscores and @.
        #[arg(value_parser = parse_name)]
        name: OperatorName,
        /// What the operator may do: viewer, support or admin.
        #[arg(long, value_parser = parse_role)]
        role: OperatorRole,
    },
    /// List operators.
    List,
    /// Print another link for an operator, for example after a lost passkey.
    ///
    /// The operator's sessions and passkeys stay. The link works once and expires after 7 days. Treat it like a password.
    Link {
        /// Name of the operator; `ipseity operator list` lists them.
        name: String,
    },
    /// Change the role of an operator.
    Role {
        /// Name of the operator; `ipseity operator list` lists them.
        name: String,
        /// What the operator may do: viewer, support or admin.
        #[arg(value_parser = parse_role)]
        role: OperatorRole,
    },
    /// Remove an operator, and end all sessions.
    Remove {
        /// Name of the operator; `ipseity operator list` lists them.
        name: String,
    },
}

impl OperatorCommand {
    pub(super) async fn run(self, config: &Config, json: bool) -> Result<()> {
        let store = operator_store(config, operator_name())?;
        match self {
            Self::Add { name, role } => {
                let (url, digest) = ipseity_portal::generate_operator_link(&console_settings(config)?.url);
                store.operators().invite(&name, role, &digest).await?;
                let value = json!({ "name": name.as_str(), "role": role.name(), "url": url });
                print_link(config, json, &value, &url)
            }
            Self::List => print_operators(&store.operators().list().await?, json),
            Self::Link { name } => {
                let operator = find_operator(&store, &name).await?;
                let (url, digest) = ipseity_portal::generate_operator_link(&console_settings(config)?.url);
                store.operators().renew_link(operator.operator.id, &digest).await?;
                print_link(config, json, &json!({ "name": operator.operator.name, "url": url }), &url)
            }
            Self::Role { name, role } => {
                let operator = find_operator(&store, &name).await?;
                let name = store.operators().set_role(operator.operator.id, role).await?;
                let text = format!("{name} has the role {}.", role.name());
                output::print_result(json, &json!({ "name": name, "role": role.name() }), &text)
            }
            Self::Remove { name } => {
                let operator = find_operator(&store, &name).await?;
                let name = store.operators().remove(operator.operator.id).await?;
                output::print_result(json, &json!({ "name": name, "removed": true }), &format!("Removed {name}."))
            }
        }
    }
}

fn print_link(config: &Config, json: bool, value: &Value, url: &str) -> Result<()> {
    ensure!(!config.admin.listen.is_empty(), "saved, but no node serves the link: [admin] listen is empty");
    output::print_result(json, value, url)
}

async fn find_operator(store: &Store, name: &str) -> Result<OperatorSummary> {
    let operators = store.operators().list().await?;
    let found = operators.into_iter().find(|summary| summary.operator.name.eq_ignore_ascii_case(name));
    found.context(StoreRefusal::UnknownOperator)
}

fn print_operators(operators: &[OperatorSummary], json: bool) -> Result<()> {
    if json {
        return operators.iter().try_for_each(|summary| {
            output::print_json(&json!({
                "name": summary.operator.name,
                "role": summary.operator.role.name(),
                "created_at": output::format_rfc3339(summary.created_s),
                "last_seen_at": summary.last_seen_s.map(output::format_rfc3339),
                "has_joined": summary.credentials > 0,
            }))
        });
    }
    let row = |summary: &OperatorSummary| {
        let last_seen = match summary.last_seen_s {
            Some(last_seen_s) => output::format_utc(last_seen_s),
            None if summary.credentials == 0 => "invited".to_owned(),
            None => "never".to_owned(),
        };
        let operator = &summary.operator;
        [operator.name.clone(), operator.role.name().to_owned(), last_seen, output::format_utc(summary.created_s)]
    };
    output::print_table(
        ["NAME", "ROLE", "LAST SEEN (UTC)", "ADDED (UTC)"],
        &operators.iter().map(row).collect::<Vec<_>>(),
    )
}

fn parse_name(text: &str) -> Result<OperatorName, String> {
    OperatorName::parse(text).ok_or_else(|| "use 1 to 64 letters, digits and the characters . _ @ -".to_owned())
}

fn parse_role(text: &str) -> Result<OperatorRole, String> {
    OperatorRole::parse(text).ok_or_else(|| "use viewer, support or admin".to_owned())
}
