//! `ipseity key restrict`

use anyhow::{Context, Result};
use clap::Args;
use ipseity_domain::restrictions::network::{AllowedNetwork, NetworkError};
use ipseity_domain::restrictions::origin::{AllowedOrigin, OriginError};
use ipseity_domain::restrictions::warning::RestrictionContext;
use ipseity_domain::restrictions::{CALLER_LIMIT_MAX, Restrictions};
use ipseity_domain::{KeyChange, KeyId};
use ipseity_store::Actor;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::admin_context::AdminContext;
use crate::cli::output;
use crate::cli::parse::parse_key_id;

#[derive(Args)]
pub(super) struct RestrictCommand {
    /// Key ID: the ten characters after `ips_`.
    #[arg(value_parser = parse_key_id)]
    id: KeyId,
    #[command(flatten)]
    restrictions: RestrictionArgs,
}

/// The options of commands that restrict a key.
#[derive(Args)]
pub(super) struct RestrictionArgs {
    /// Origin whose pages may use the key, such as `https://example.com` or `https://*.example.com`. Repeat it for several; at most 20.
    #[arg(long = "origin", value_name = "ORIGIN", value_parser = parse_origin)]
    origins: Vec<AllowedOrigin>,
    /// Network whose addresses may use the key, such as 198.51.100.0/24. Repeat it for several; at most 50.
    #[arg(long = "network", value_name = "CIDR", value_parser = parse_network)]
    networks: Vec<AllowedNetwork>,
    /// When the key expires, such as 2027-01-31T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires: Option<Timestamp>,
    /// Requests per minute of one caller, at each node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(CALLER_LIMIT_MAX)))]
    caller_limit: Option<u32>,
    /// Requests per day, if that is less than the limit of the plan.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    daily_limit: Option<u64>,
    /// Reject the key itself, and accept only its tickets.
    #[arg(long, conflicts_with = "origins")]
    tickets_only: bool,
}

impl RestrictionArgs {
    pub(super) fn into_restrictions(self) -> Result<Restrictions> {
        let expires_at_s = self.expires.map(|expires| u64::try_from(expires.as_second()));
        let restrictions = Restrictions {
            origins: self.origins,
            networks: self.networks,
            expires_at_s: expires_at_s.transpose().context("--expires is before 1970")?,
            caller_limit: self.caller_limit,
            daily_limit: self.daily_limit,
            tickets_only: self.tickets_only,
            tickets_since: 0,
        };
        restrictions.validate()?;
        Ok(restrictions)
    }
}

impl RestrictCommand {
    pub(super) async fn run(self, admin: &AdminContext, json: bool) -> Result<()> {
        let restrictions = self.restrictions.into_restrictions()?;
        let service = admin.service_for_change().await?;
        let committed = service.restrict(Actor::Operator, self.id, &restrictions, None).await?;
        admin.warn_unless_in_effect(&committed)?;
        let result = if restrictions.restricts() { "is restricted" } else { "is not restricted" };
        if let KeyChange::Updated(record) = &committed.change {
            print_warnings(admin, &restrictions, record.daily_limit, record.burst_limit).await?;
            let value = json!({ "id": self.id.as_str(), "restrictions": restrictions_json(&restrictions) });
            output::print_result(json, &value, &format!("Key {} {result}.", self.id))?;
        }
        Ok(())
    }
}

/// Warns of what the operator may not expect of the restrictions of a key with these limits.
pub(super) async fn print_warnings(
    admin: &AdminContext,
    restrictions: &Restrictions,
    daily_limit: u64,
    burst_limit: usize,
) -> Result<()> {
    let nodes = admin.store.deployment().node_count().await?;
    let context =
        RestrictionContext { daily_limit, burst_limit, nodes, now_s: Timestamp::now().as_second().unsigned_abs() };
    restrictions.warnings(&context).iter().try_for_each(|warning| output::print_warning(&warning.to_string()))
}

fn parse_origin(text: &str) -> Result<AllowedOrigin, OriginError> {
    AllowedOrigin::parse(text)
}

fn parse_network(text: &str) -> Result<AllowedNetwork, NetworkError> {
    AllowedNetwork::parse(text)
}

/// The restrictions, as `ipseity key show` prints them.
pub(super) fn restriction_lines(restrictions: &Restrictions) -> Vec<(&'static str, String)> {
    let Restrictions { origins, networks, expires_at_s, caller_limit, daily_limit, tickets_only, .. } = restrictions;
    let join = |entries: Vec<String>| (!entries.is_empty()).then(|| entries.join(" "));
    let lines = [
        ("allowed origins", join(origins.iter().map(|origin| origin.as_str().to_owned()).collect())),
        ("allowed networks", join(networks.iter().map(ToString::to_string).collect())),
        ("expires", expires_at_s.map(|at_s| format!("{} UTC", output::format_utc(at_s.cast_signed())))),
        ("caller limit", caller_limit.map(|limit| format!("{limit} requests per minute"))),
        ("daily limit", daily_limit.map(|limit| format!("{limit} requests"))),
        ("tickets only", tickets_only.then(|| "yes".to_owned())),
    ];
    lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The restrictions, as `ipseity key show --json` prints them.
pub(super) fn restrictions_json(restrictions: &Restrictions) -> Value {
    json!({
        "origins": restrictions.origins.iter().map(AllowedOrigin::as_str).collect::<Vec<_>>(),
        "networks": restrictions.networks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "expires_at": restrictions.expires_at_s.map(|at_s| output::format_rfc3339(at_s.cast_signed())),
        "caller_limit": restrictions.caller_limit,
        "daily_limit": restrictions.daily_limit,
        "tickets_only": restrictions.tickets_only,
    })
}
