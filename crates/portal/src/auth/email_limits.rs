//! Limits on the emails that visitors request, per subnet and per node. PostgreSQL enforces the limit per address.

use std::time::Duration;

use ipseity_domain::ClientSubnet;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::auth::throttle::{SubnetThrottle, Throttle};
use crate::error::PortalError;

/// How long requests of a subnet count, like its sign-in attempts.
const SUBNET_PERIOD: Duration = Duration::from_secs(600);
/// How long requests on the node count.
const NODE_PERIOD: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EmailLimitLabel {
    limit: &'static str,
}

const SUBNET: EmailLimitLabel = EmailLimitLabel { limit: "subnet" };
const NODE: EmailLimitLabel = EmailLimitLabel { limit: "node" };

/// Counts requested emails in memory.
pub(crate) struct EmailLimits {
    subnet_throttle: SubnetThrottle,
    node_throttle: Throttle<()>,
    rejections: Family<EmailLimitLabel, Counter>,
}

impl EmailLimits {
    /// Tracks at most `subnets_max` subnets.
    pub(crate) fn new(per_subnet_max: u32, per_node_max: u32, subnets_max: usize) -> Self {
        let rejections = Family::<EmailLimitLabel, Counter>::default();
        for label in [SUBNET, NODE] {
            drop(rejections.get_or_create(&label));
        }
        Self {
            subnet_throttle: SubnetThrottle::new(per_subnet_max, SUBNET_PERIOD, subnets_max),
            node_throttle: Throttle::new(per_node_max, NODE_PERIOD, 1),
            rejections,
        }
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let help = "Requests for emails that were rejected, by limit";
        registry.register("email_requests_rejected", help, self.rejections.clone());
    }

    /// Removes the subnets whose requests no longer count.
    pub(crate) fn remove_expired(&self) {
        self.subnet_throttle.remove_expired();
    }

    /// Counts a request from a subnet, if it is allowed.
    pub(crate) fn record_for_subnet(&self, subnet: ClientSubnet) -> Result<(), PortalError> {
        self.subnet_throttle.record_attempt(subnet).map_err(|wait| {
            self.rejections.get_or_create(&SUBNET).inc();
            PortalError::EmailsThrottled(wait)
        })
    }

    /// Counts a request for a sign-up or password reset email on this node, if it is allowed. Call it last, so that requests
    /// that fail for another reason do not count.
    pub(crate) fn record_for_node(&self) -> Result<(), PortalError> {
        self.node_throttle.record_attempt(()).map_err(|wait| {
            self.rejections.get_or_create(&NODE).inc();
            PortalError::EmailLimitReached(wait)
        })
    }
}
