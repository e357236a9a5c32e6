//! Faults of the links between nodes, the command line, stores and home. Several can be active on one link.

use std::time::Duration;

use ipseity_testkit::{FaultConfig, FaultProxy, NodeFaultProxies};

/// A link of a remote node to home without a fault.
const SITE_LINK: FaultConfig =
    FaultConfig { delay: Duration::from_millis(5), jitter: Duration::from_millis(1), ..FaultConfig::none() };

/// What is at the end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkTarget {
    Redis,
    Postgres,
    /// The home nodes, for a remote node.
    Home,
}

/// Which links have a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkScope {
    /// Those of all nodes.
    Nodes,
    /// Those of all nodes and of the command line.
    All,
    Node(usize),
    CommandLine,
    /// All links to one server of a cluster.
    Shard(usize),
    /// Those of all remote nodes to home.
    Sites,
}

/// A fault of some links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkFault {
    pub(crate) target: LinkTarget,
    pub(crate) scope: LinkScope,
    pub(crate) config: FaultConfig,
}

/// The active faults of all links, by number.
#[derive(Default)]
pub(crate) struct LinkFaults {
    active: Vec<(usize, LinkFault)>,
    next: usize,
}

/// The proxies of all links.
pub(crate) struct LinkProxies<'a> {
    pub(crate) nodes: Vec<&'a NodeFaultProxies>,
    pub(crate) command_line: &'a NodeFaultProxies,
    pub(crate) shards: &'a [FaultProxy],
    /// Links of remote nodes to home nodes, which are always slow.
    pub(crate) sites: &'a [FaultProxy],
}

impl LinkFaults {
    pub(crate) fn add(&mut self, fault: LinkFault) -> usize {
        self.next += 1;
        self.active.push((self.next, fault));
        self.next
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.active.retain(|(of, _)| *of != number);
    }

    /// Sets every proxy to the combination of its faults.
    pub(crate) fn apply(&self, proxies: &LinkProxies<'_>) {
        let set_both = |of: &NodeFaultProxies, scopes: &[LinkScope]| {
            self.set(&of.redis, LinkTarget::Redis, scopes);
            self.set(&of.postgres, LinkTarget::Postgres, scopes);
        };
        for (index, node) in proxies.nodes.iter().enumerate() {
            set_both(node, &[LinkScope::Nodes, LinkScope::All, LinkScope::Node(index)]);
        }
        set_both(proxies.command_line, &[LinkScope::All, LinkScope::CommandLine]);
        for (index, shard) in proxies.shards.iter().enumerate() {
            self.set(shard, LinkTarget::Redis, &[LinkScope::Nodes, LinkScope::All, LinkScope::Shard(index)]);
        }
        for site in proxies.sites {
            self.set(site, LinkTarget::Home, &[LinkScope::Sites]);
        }
    }

    fn set(&self, proxy: &FaultProxy, target: LinkTarget, scopes: &[LinkScope]) {
        let healthy = if target == LinkTarget::Home { SITE_LINK } else { FaultConfig::none() };
        let faults = self.active.iter().map(|(_, fault)| fault);
        let concerned = faults.filter(|fault| fault.target == target && scopes.contains(&fault.scope));
        proxy.set_faults(concerned.fold(healthy, |sum, fault| combine(sum, fault.config)));
    }
}

/// Both faults together.
fn combine(left: FaultConfig, right: FaultConfig) -> FaultConfig {
    FaultConfig {
        delay: left.delay.max(right.delay),
        jitter: left.jitter.max(right.jitter),
        cut: left.cut || right.cut,
        half_open: left.half_open || right.half_open,
        reply_drop_rate: left.reply_drop_rate.max(right.reply_drop_rate),
        bytes_per_second: left.bytes_per_second.or(right.bytes_per_second),
        hold_requests_before: left.hold_requests_before.max(right.hold_requests_before),
        hold_replies: left.hold_replies || right.hold_replies,
        seed: left.seed ^ right.seed,
    }
}
