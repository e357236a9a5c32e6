//! `ipseity plan …`

use anyhow::{Result, ensure};
use clap::Subcommand;
use ipseity_domain::{BURST_LIMIT, DAILY_LIMIT_MAX, KEYS_PER_ACCOUNT_MAX, Limits, Plan};
use serde_json::{Value, json};

use crate::cli::admin_context::AdminContext;
use crate::cli::limits::{describe, limits_json, parse_burst_limit, parse_keys_max};
use crate::cli::output;

#[derive(Subcommand)]
pub(super) enum PlanCommand {
    /// List plans.
    List,
    /// Add a plan.
    ///
    /// A plan cannot be changed later; assign accounts to another plan instead.
    Add {
        /// Plan name: lowercase letters, digits and dashes.
        name: String,
        /// Requests per key per day.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=DAILY_LIMIT_MAX))]
        daily_limit: u64,
        /// Requests per key in any 60 seconds. One more pauses the key.
        #[arg(long, value_name = "N", default_value_t = BURST_LIMIT, value_parser = parse_burst_limit)]
        burst_limit: usize,
        /// Maximum number of keys per account.
        #[arg(long, value_name = "N", default_value_t = KEYS_PER_ACCOUNT_MAX, value_parser = parse_keys_max)]
        keys_max: usize,
    },
}

impl PlanCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        match self {
            Self::List => {
                let plans = admin.store.plans().list().await?;
                if json {
                    return plans.iter().try_for_each(|plan| output::print_json(&plan_json(plan)));
                }
                let to_row = |Plan { name, limits }: Plan| {
                    let numbers = [limits.daily_limit, limits.burst_limit as u64, limits.keys_max as u64];
                    let [daily_limit, burst_limit, keys_max] = numbers.map(|number| number.to_string());
                    [name, daily_limit, burst_limit, keys_max]
                };
                let rows: Vec<_> = plans.into_iter().map(to_row).collect();
                output::print_table(["PLAN", "REQUESTS PER DAY", "IN 60 SECONDS", "KEYS"], &rows)
            }
            Self::Add { name, daily_limit, burst_limit, keys_max } => {
                let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                ensure!(
                    name.starts_with(|c: char| c.is_ascii_lowercase())
                        && name.len() <= 32
                        && name.chars().all(is_allowed),
                    "a plan name has up to 32 lowercase letters, digits and dashes, and starts with a letter"
                );
                let limits = Limits { daily_limit, burst_limit, keys_max };
                let plan = Plan { name, limits };
                admin.store.plans().create(&plan).await?;
                let text = format!("Added plan {}: {}.", plan.name, describe(limits));
                output::print_result(json, &plan_json(&plan), &text)
            }
        }
    }
}

fn plan_json(plan: &Plan) -> Value {
    json!({ "name": plan.name, "limits": limits_json(plan.limits) })
}
