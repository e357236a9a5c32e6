//! `ipseity plan …`

use anyhow::{Result, ensure};
use clap::Subcommand;
use domain::Plan;
use serde_json::json;

use super::{Desk, show};

#[derive(Subcommand)]
pub(super) enum PlanCommand {
    /// List the plans.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a plan. Plans do not change; give an account another one instead.
    Add {
        /// Lower-case letters, digits and dashes.
        name: String,
        /// Requests a day and key.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        daily_limit: u64,
    },
}

impl PlanCommand {
    pub(super) async fn run(self, desk: &Desk) -> Result<()> {
        match self {
            Self::List { json } => {
                let plans = desk.store.plans().await?;
                if json {
                    let plans: Vec<_> = plans
                        .iter()
                        .map(|plan| json!({ "name": plan.name, "daily_limit": plan.daily_limit }))
                        .collect();
                    return show::json(&json!(plans));
                }
                let rows: Vec<_> = plans.into_iter().map(|plan| [plan.name, plan.daily_limit.to_string()]).collect();
                show::table(["PLAN", "REQUESTS A DAY"], &rows)
            }
            Self::Add { name, daily_limit } => {
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                ensure!(
                    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 32 && name.chars().all(plain),
                    "a plan's name is up to 32 lower-case letters, digits and dashes, and begins with a letter"
                );
                desk.store.add_plan(&Plan { name: name.clone(), daily_limit }).await?;
                show::line(&format!("Plan {name} allows {daily_limit} requests a day and key."))
            }
        }
    }
}
