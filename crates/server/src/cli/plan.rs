//! `ipseity plan …`

use anyhow::{Result, ensure};
use clap::Subcommand;
use ipseity_domain::Plan;
use serde_json::json;

use crate::cli::admin_context::AdminContext;
use crate::cli::output;

#[derive(Subcommand)]
pub(super) enum PlanCommand {
    /// List plans.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a plan.
    ///
    /// A plan cannot be changed later; assign accounts to another plan instead.
    Add {
        /// Plan name: lowercase letters, digits and dashes.
        name: String,
        /// Requests per key per day.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        daily_limit: u64,
    },
}

impl PlanCommand {
    pub(super) async fn run(self, admin: &AdminContext) -> Result<()> {
        match self {
            Self::List { json } => {
                let plans = admin.store.plans().list().await?;
                if json {
                    let plans: Vec<_> = plans
                        .iter()
                        .map(|plan| json!({ "name": plan.name, "daily_limit": plan.daily_limit }))
                        .collect();
                    return output::print_json(&json!(plans));
                }
                let rows: Vec<_> = plans.into_iter().map(|plan| [plan.name, plan.daily_limit.to_string()]).collect();
                output::print_table(["PLAN", "REQUESTS PER DAY"], &rows)
            }
            Self::Add { name, daily_limit } => {
                let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                ensure!(
                    name.starts_with(|c: char| c.is_ascii_lowercase())
                        && name.len() <= 32
                        && name.chars().all(is_allowed),
                    "a plan name has up to 32 lowercase letters, digits and dashes, and starts with a letter"
                );
                admin.store.plans().create(&Plan { name: name.clone(), daily_limit }).await?;
                output::print_line(&format!("Added plan {name}: {daily_limit} requests per key per day."))
            }
        }
    }
}
