//! What an owner may not expect of valid restrictions.

use std::fmt::{self, Display, Formatter};

use crate::client::{AddressFamily, LARGEST_SUBNET_FACTOR};
use crate::restrictions::Restrictions;
use crate::restrictions::network::AllowedNetwork;

/// What the effect of restrictions depends on.
#[derive(Clone, Copy, Debug)]
pub struct RestrictionContext {
    /// The daily limit of the key, with its restrictions.
    pub daily_limit: u64,
    /// The burst limit of the key.
    pub burst_limit: usize,
    /// Number of nodes. Each counts callers by itself.
    pub nodes: u32,
    /// The time, as Unix time in seconds.
    pub now_s: u64,
}

/// What an owner may not expect of valid restrictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestrictionWarning {
    /// All callers of a family are rejected.
    NoNetworkOf(AddressFamily),
    /// The key has expired.
    Expired,
    /// One caller can make so many requests that others soon pause the key.
    CallerCanPause {
        /// The burst limit of the key.
        burst_limit: usize,
        /// Number of nodes.
        nodes: u32,
    },
    /// The limit of the plan is lower.
    DailyLimitWithoutEffect,
}

impl Display for RestrictionWarning {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoNetworkOf(family) => {
                let family = match family {
                    AddressFamily::Ipv4 => "IPv4",
                    AddressFamily::Ipv6 => "IPv6",
                };
                write!(formatter, "Callers over {family} are rejected, because no {family} network is listed.")
            }
            Self::Expired => formatter.write_str("This key has expired. Requests with it are rejected."),
            Self::CallerCanPause { burst_limit, nodes } => {
                write!(
                    formatter,
                    "One caller can make more than half of the {burst_limit} requests that pause the key: "
                )?;
                if nodes > 1 {
                    write!(formatter, "each of the {nodes} nodes counts separately, and ")?;
                }
                write!(formatter, "an IPv6 /48 network has {LARGEST_SUBNET_FACTOR} times this limit. ")?;
                match safe_caller_limit(burst_limit, nodes) {
                    0 => formatter.write_str("No limit prevents that with so many nodes."),
                    safe => write!(formatter, "Set at most {safe}."),
                }
            }
            Self::DailyLimitWithoutEffect => {
                formatter.write_str("This has no effect: the limit of your plan is lower.")
            }
        }
    }
}

impl Restrictions {
    /// What the owner may not expect of these restrictions.
    #[must_use]
    pub fn warnings(&self, context: &RestrictionContext) -> Vec<RestrictionWarning> {
        let RestrictionContext { daily_limit, burst_limit, nodes, now_s } = *context;
        let can_pause = |limit| limit > safe_caller_limit(burst_limit, nodes);
        [
            missing_family(&self.networks).map(RestrictionWarning::NoNetworkOf),
            self.expires_at_s.is_some_and(|at_s| at_s <= now_s).then_some(RestrictionWarning::Expired),
            self.caller_limit
                .is_some_and(can_pause)
                .then_some(RestrictionWarning::CallerCanPause { burst_limit, nodes }),
            self.daily_limit
                .is_some_and(|limit| limit > daily_limit)
                .then_some(RestrictionWarning::DailyLimitWithoutEffect),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The largest limit per caller with which a single caller leaves half of the burst limit to the others.
#[must_use]
pub fn safe_caller_limit(burst_limit: usize, nodes: u32) -> u32 {
    let factor = 2 * u64::from(nodes.max(1)) * u64::from(LARGEST_SUBNET_FACTOR);
    u32::try_from(burst_limit as u64 / factor).unwrap_or(u32::MAX)
}

fn missing_family(networks: &[AllowedNetwork]) -> Option<AddressFamily> {
    match (networks.iter().any(|network| network.is_ipv4()), networks.iter().any(|network| !network.is_ipv4())) {
        (true, false) => Some(AddressFamily::Ipv6),
        (false, true) => Some(AddressFamily::Ipv4),
        (true, true) | (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: RestrictionContext =
        RestrictionContext { daily_limit: 10_000, burst_limit: 300, nodes: 3, now_s: 1_794_700_000 };

    fn networks(texts: &[&str]) -> Vec<AllowedNetwork> {
        texts.iter().map(|text| AllowedNetwork::parse(text).expect("valid network")).collect()
    }

    #[test]
    fn values_without_surprises_have_no_warning() {
        let restrictions = Restrictions {
            networks: networks(&["192.0.2.0/24", "2001:db8::/32"]),
            expires_at_s: Some(CONTEXT.now_s + 1),
            caller_limit: Some(12),
            daily_limit: Some(10_000),
            ..Restrictions::default()
        };
        assert_eq!(restrictions.warnings(&CONTEXT), []);
        assert_eq!(Restrictions::default().warnings(&CONTEXT), []);
    }

    #[test]
    fn surprising_values_have_a_warning_each() {
        let restrictions = Restrictions {
            networks: networks(&["192.0.2.0/24"]),
            expires_at_s: Some(CONTEXT.now_s),
            caller_limit: Some(13),
            daily_limit: Some(10_001),
            ..Restrictions::default()
        };
        let texts = restrictions.warnings(&CONTEXT).iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = [
            "Callers over IPv6 are rejected, because no IPv6 network is listed.",
            "This key has expired. Requests with it are rejected.",
            "One caller can make more than half of the 300 requests that pause the key: each of the 3 nodes counts separately, \
             and an IPv6 /48 network has 4 times this limit. Set at most 12.",
            "This has no effect: the limit of your plan is lower.",
        ];
        assert_eq!(texts, expected);
        let only_ipv6 = Restrictions { networks: networks(&["2001:db8::/32"]), ..Restrictions::default() };
        assert_eq!(only_ipv6.warnings(&CONTEXT), [RestrictionWarning::NoNetworkOf(AddressFamily::Ipv4)]);
    }

    #[test]
    fn safe_limit_shrinks_with_the_number_of_nodes() {
        for (burst_limit, nodes, safe) in [(300, 0, 37), (300, 1, 37), (300, 3, 12), (300, 38, 0), (6_000, 10, 75)] {
            assert_eq!(safe_caller_limit(burst_limit, nodes), safe, "{burst_limit} {nodes}");
        }
        let one_node = RestrictionWarning::CallerCanPause { burst_limit: 300, nodes: 1 }.to_string();
        assert!(one_node.contains("pause the key: an IPv6 /48"), "{one_node}");
        let many = RestrictionWarning::CallerCanPause { burst_limit: 300, nodes: 38 }.to_string();
        assert!(many.ends_with("No limit prevents that with so many nodes."), "{many}");
    }
}
