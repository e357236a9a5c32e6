//! Limits that differ from the specification of the API. They are allowed, but clients may rely on the specified ones.

use anyhow::Result;
use ipseity_domain::plan::FREE_PLAN;
use ipseity_domain::{DEMO_DAILY_LIMIT, Limits, Plan};
use ipseity_store::Store;

use crate::cli::limits::describe;
use crate::config::Config;

/// How the demo differs.
pub(super) fn demo_deviation(config: &Config) -> Option<String> {
    let limit = config.ledger.demo_daily_limit;
    (limit != DEMO_DAILY_LIMIT).then(|| {
        format!(
            "Outside the contract: [ledger] demo_daily_limit is {limit}, but {DEMO_DAILY_LIMIT} by the specification."
        )
    })
}

/// How plans, accounts and keys differ. Plans other than the free one may have any daily limit.
pub(super) async fn limit_deviations(store: &Store) -> Result<Vec<String>> {
    let is_specified = |plan: &Plan| {
        let daily_limit = if plan.name == FREE_PLAN { Limits::SPECIFIED.daily_limit } else { plan.limits.daily_limit };
        plan.limits == Limits { daily_limit, ..Limits::SPECIFIED }
    };
    let plans = store.plans().list().await?;
    let deviation = |plan: Plan| format!("Outside the contract: plan {} has {}.", plan.name, describe(plan.limits));
    let mut deviations: Vec<_> = plans.into_iter().filter(|plan| !is_specified(plan)).map(deviation).collect();
    match store.plans().count_unspecified_overrides().await? {
        0 => {}
        count => deviations
            .push(format!("Outside the contract: {count} accounts or keys have other limits than the specification.")),
    }
    Ok(deviations)
}
