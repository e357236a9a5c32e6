//! Faults of the links between nodes, the command line and stores. Several can be active on one link.

use ipseity_testkit::{FaultConfig, FaultProxy, NodeFaultProxies};

/// The store at the end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreLink {
    Redis,
    Postgres,
}

/// Which links to a store have a fault.
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
}

/// A fault of some links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkFault {
    pub(crate) store: StoreLink,
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
        for store in [StoreLink::Redis, StoreLink::Postgres] {
            for (index, node) in proxies.nodes.iter().enumerate() {
                let scopes = [LinkScope::Nodes, LinkScope::All, LinkScope::Node(index)];
                self.set(proxy_of(node, store), store, &scopes);
            }
            let scopes = [LinkScope::All, LinkScope::CommandLine];
            self.set(proxy_of(proxies.command_line, store), store, &scopes);
        }
        for (index, shard) in proxies.shards.iter().enumerate() {
            self.set(shard, StoreLink::Redis, &[LinkScope::Nodes, LinkScope::All, LinkScope::Shard(index)]);
        }
    }

    fn set(&self, proxy: &FaultProxy, store: StoreLink, scopes: &[LinkScope]) {
        let faults = self.active.iter().map(|(_, fault)| fault);
        let concerned = faults.filter(|fault| fault.store == store && scopes.contains(&fault.scope));
        proxy.set_faults(concerned.fold(FaultConfig::none(), |sum, fault| combine(sum, fault.config)));
    }
}

pub(crate) const fn proxy_of(proxies: &NodeFaultProxies, store: StoreLink) -> &FaultProxy {
    match store {
        StoreLink::Redis => &proxies.redis,
        StoreLink::Postgres => &proxies.postgres,
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
        seed: left.seed ^ right.seed,
    }
}
