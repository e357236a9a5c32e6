//! The restrictions of a key as JSON.

use ipseity_domain::Restrictions;
use ipseity_domain::restrictions::network::AllowedNetwork;
use ipseity_domain::restrictions::origin::AllowedOrigin;
use ipseity_domain::restrictions::{CALLER_LIMIT_MAX, NETWORKS_MAX, ORIGINS_MAX};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::body::{invalid, optional_integer};
use super::error::ManageError;
use crate::time;

/// Restrictions. What is missing or null does not restrict.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RestrictionsBody {
    origins: Vec<String>,
    networks: Vec<String>,
    expires_at: Option<String>,
    #[serde(deserialize_with = "optional_integer")]
    caller_limit: Option<u64>,
    #[serde(deserialize_with = "optional_integer")]
    daily_limit: Option<u64>,
    tickets_only: bool,
}

impl RestrictionsBody {
    /// The restrictions to store. An expiry must be in the future, or the one that is saved, which may have passed.
    pub(super) fn parse(self, saved_expiry_s: Option<u64>) -> Result<Restrictions, ManageError> {
        let caller_limit = self.caller_limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        if caller_limit.is_some_and(|limit| !(1..=CALLER_LIMIT_MAX).contains(&limit)) {
            return Err(invalid(&format!("`caller_limit` must be from 1 to {CALLER_LIMIT_MAX}")));
        }
        if self.daily_limit.is_some_and(|limit| !(1..=i64::MAX.unsigned_abs()).contains(&limit)) {
            return Err(invalid("`daily_limit` must be at least 1"));
        }
        let restrictions = Restrictions {
            origins: parse_list("origins", &self.origins, ORIGINS_MAX, AllowedOrigin::parse)?,
            networks: parse_list("networks", &self.networks, NETWORKS_MAX, AllowedNetwork::parse)?,
            expires_at_s: self.expires_at.as_deref().map(|text| parse_expiry(text, saved_expiry_s)).transpose()?,
            caller_limit,
            daily_limit: self.daily_limit,
            tickets_only: self.tickets_only,
            tickets_since: 0,
        };
        restrictions.validate().map_err(|error| invalid(&error.to_string()))?;
        Ok(restrictions)
    }
}

impl From<&Restrictions> for RestrictionsBody {
    fn from(restrictions: &Restrictions) -> Self {
        let Restrictions { origins, networks, expires_at_s, caller_limit, daily_limit, tickets_only, .. } =
            restrictions;
        Self {
            origins: origins.iter().map(|origin| origin.as_str().to_owned()).collect(),
            networks: networks.iter().map(ToString::to_string).collect(),
            expires_at: expires_at_s.map(|at_s| time::format_rfc3339(at_s.cast_signed())),
            caller_limit: caller_limit.map(u64::from),
            daily_limit: *daily_limit,
            tickets_only: *tickets_only,
        }
    }
}

fn parse_list<T: PartialEq, E: std::fmt::Display>(
    name: &str,
    entries: &[String],
    entries_max: usize,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, ManageError> {
    if entries.len() > entries_max {
        return Err(invalid(&format!("`{name}` has more than {entries_max} entries")));
    }
    let mut parsed = Vec::new();
    for entry in entries {
        let entry = parse(entry.trim()).map_err(|error| invalid(&format!("an entry of `{name}` {error}")))?;
        if !parsed.contains(&entry) {
            parsed.push(entry);
        }
    }
    Ok(parsed)
}

fn parse_expiry(text: &str, saved_s: Option<u64>) -> Result<u64, ManageError> {
    let at: Timestamp =
        text.parse().map_err(|_| invalid("`expires_at` must be a time such as 2027-01-01T00:00:00Z"))?;
    let at_s = u64::try_from(at.as_second()).unwrap_or(0);
    // The clock of this machine decides only what is accepted. Redis decides when the key expires.
    if at_s > time::now_s() || saved_s == Some(at_s) { Ok(at_s) } else { Err(invalid("`expires_at` has passed")) }
}
