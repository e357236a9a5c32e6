//! `ipseity account limits` and `ipseity key limits`

use anyhow::Result;
use clap::Args;
use ipseity_domain::{BURST_LIMIT_MAX, DAILY_LIMIT_MAX, KEYS_MAX_LIMIT, KeyChange, KeyId, LimitOverrides, Limits};
use serde_json::{Value, json};

use crate::cli::admin_context::AdminContext;
use crate::cli::output;
use crate::cli::parse::parse_key_id;

/// Limits of requests. Those of an account or a key replace the ones of its plan.
#[derive(Args, Clone, Copy)]
pub(super) struct RequestLimits {
    /// Requests per key per day.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=DAILY_LIMIT_MAX))]
    daily_limit: Option<u64>,
    /// Requests per key in any 60 seconds.
    #[arg(long, value_name = "N", value_parser = parse_burst_limit)]
    burst_limit: Option<usize>,
}

#[derive(Args)]
pub(super) struct AccountLimitsCommand {
    /// Email address of the account's owner.
    #[arg(long)]
    email: String,
    #[command(flatten)]
    requests: RequestLimits,
    /// Maximum number of keys.
    #[arg(long, value_name = "N", value_parser = parse_keys_max)]
    keys_max: Option<usize>,
}

#[derive(Args)]
pub(super) struct KeyLimitsCommand {
    /// Key ID: the ten characters after `ips_`.
    #[arg(value_parser = parse_key_id)]
    id: KeyId,
    #[command(flatten)]
    requests: RequestLimits,
}

impl RequestLimits {
    const fn overrides(self, keys_max: Option<usize>) -> LimitOverrides {
        LimitOverrides { daily_limit: self.daily_limit, burst_limit: self.burst_limit, keys_max }
    }
}

impl AccountLimitsCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        let account = admin.find_account(&self.email).await?;
        let service = admin.service_for_change().await?;
        let overrides = self.requests.overrides(self.keys_max);
        for id in admin.store.accounts().set_limits(&account, overrides).await? {
            let change = admin.store.keys().find_change(id).await?;
            admin.warn_unless_in_effect(&service.publish(change).await)?;
        }
        let account = admin.find_account(&self.email).await?;
        let (email, limits) = (&account.email, account.limits());
        let value = json!({ "email": email, "limits": limits_json(limits) });
        output::print_result(json, &value, &format!("Limits of {email}: {}.", describe(limits)))
    }
}

impl KeyLimitsCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        let service = admin.service_for_change().await?;
        let change = admin.store.keys().set_limits(self.id, self.requests.overrides(None)).await?;
        let committed = service.publish(change).await;
        admin.warn_unless_in_effect(&committed)?;
        if let KeyChange::Updated(record) = &committed.change {
            let (id, daily_limit, burst_limit) = (self.id, record.daily_limit, record.burst_limit);
            let limits = json!({ "daily_limit": daily_limit, "burst_limit": burst_limit });
            let value = json!({ "id": id.as_str(), "limits": limits });
            let text = format!("Limits of key {id}: {daily_limit} requests per day, {burst_limit} in any 60 seconds.");
            output::print_result(json, &value, &text)?;
        }
        Ok(())
    }
}

pub(super) fn describe(Limits { daily_limit, burst_limit, keys_max }: Limits) -> String {
    format!("{daily_limit} requests per key per day, {burst_limit} in any 60 seconds, up to {keys_max} keys")
}

pub(super) fn limits_json(limits: Limits) -> Value {
    json!({ "daily_limit": limits.daily_limit, "burst_limit": limits.burst_limit, "keys_max": limits.keys_max })
}

pub(super) fn parse_burst_limit(text: &str) -> Result<usize, String> {
    parse_number(text, BURST_LIMIT_MAX)
}

pub(super) fn parse_keys_max(text: &str) -> Result<usize, String> {
    parse_number(text, KEYS_MAX_LIMIT)
}

fn parse_number(text: &str, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("enter a number from 1 to {max}"))
}
