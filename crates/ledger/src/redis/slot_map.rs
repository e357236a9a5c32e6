//! The slot map: which server owns which slot. Without a cluster, one server owns all slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, Value};

use crate::error::LedgerError;
use crate::layout::HashSlot;
use crate::redis::connection::RedisConnection;
use crate::redis::node::RedisNode;

/// A slot map younger than this is not refreshed.
const REFRESH_INTERVAL_MIN: Duration = Duration::from_millis(100);

pub(crate) struct SlotMap {
    ranges: Vec<SlotRange>,
    /// The server that reported the ranges. It also gets requests for unassigned slots, and returns the error for them.
    source: Arc<RedisNode>,
    fetched_at: Instant,
}

struct SlotRange {
    first: u16,
    last: u16,
    owner: Arc<RedisNode>,
}

impl PartialEq for SlotRange {
    fn eq(&self, other: &Self) -> bool {
        (self.first, self.last) == (other.first, other.last) && Arc::ptr_eq(&self.owner, &other.owner)
    }
}

impl SlotMap {
    /// The slot map without a cluster.
    pub(crate) fn standalone(node: Arc<RedisNode>) -> Self {
        Self { ranges: Vec::new(), source: node, fetched_at: Instant::now() }
    }

    /// The slot map of a cluster, as one of its servers reports it.
    pub(crate) fn from_cluster_view(
        source: Arc<RedisNode>,
        view: &ClusterView,
        mut node_at: impl FnMut(ConnectionAddr) -> Result<Arc<RedisNode>, LedgerError>,
    ) -> Result<Self, LedgerError> {
        let mut ranges = Vec::new();
        for entry in &view.slots {
            let (first, last, host, port) = parse_slot_range(entry).ok_or(LedgerError::UnexpectedReply("slot map"))?;
            ranges.push(SlotRange { first, last, owner: node_at(sibling_addr(source.address(), host, port))? });
        }
        Ok(Self { ranges, source, fetched_at: Instant::now() })
    }

    pub(crate) fn owner(&self, slot: HashSlot) -> &Arc<RedisNode> {
        let range = self.ranges.iter().find(|range| (range.first..=range.last).contains(&slot.0));
        range.map_or(&self.source, |range| &range.owner)
    }

    /// Whether every slot has the same owner.
    pub(crate) fn has_same_owners(&self, other: &Self) -> bool {
        self.ranges == other.ranges && (!self.ranges.is_empty() || Arc::ptr_eq(&self.source, &other.source))
    }

    /// All servers that own a slot.
    pub(crate) fn owners(&self) -> Vec<Arc<RedisNode>> {
        let mut owners: Vec<Arc<RedisNode>> = Vec::new();
        for owner in self.ranges.iter().map(|range| &range.owner) {
            if !owners.iter().any(|existing| Arc::ptr_eq(existing, owner)) {
                owners.push(Arc::clone(owner));
            }
        }
        if owners.is_empty() {
            owners.push(Arc::clone(&self.source));
        }
        owners
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.fetched_at.elapsed() < REFRESH_INTERVAL_MIN
    }
}

/// The state of a cluster, as one of its servers reports it.
pub(crate) struct ClusterView {
    /// Rises with every failover and every moved slot. The highest epoch is the newest.
    pub(crate) epoch: u64,
    slots: Vec<Value>,
}

impl ClusterView {
    pub(crate) async fn fetch(connection: &RedisConnection) -> Result<Self, LedgerError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
        let (info, slots): (String, Vec<Value>) = pipeline.query_async(&mut connection.conn.clone()).await?;
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.parse().ok());
        Ok(Self { epoch: epoch.ok_or(LedgerError::UnexpectedReply("epoch"))?, slots })
    }
}

/// Parses `[first, last, [host, port, …], replicas …]`.
pub(crate) fn parse_slot_range(entry: &Value) -> Option<(u16, u16, &str, u16)> {
    let [Value::Int(first), Value::Int(last), primary, ..] = entry.as_sequence()? else { return None };
    let [host, Value::Int(port), ..] = primary.as_sequence()? else { return None };
    let host = if let Value::BulkString(host) = host { std::str::from_utf8(host).ok()? } else { "" };
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, host, u16::try_from(*port).ok()?))
}

/// The address of another server of the cluster, with the same encryption. If a server does not report its host, it is
/// the host that was queried.
pub(crate) fn sibling_addr(queried_addr: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    let host =
        |queried_host: &String| if host.is_empty() || host == "?" { queried_host.clone() } else { host.to_owned() };
    match queried_addr {
        ConnectionAddr::TcpTls { host: queried_host, insecure, tls_params, .. } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            ConnectionAddr::TcpTls { host: host(queried_host), port, insecure, tls_params }
        }
        ConnectionAddr::Tcp(queried_host, _) => ConnectionAddr::Tcp(host(queried_host), port),
        // A socket file has no host.
        ConnectionAddr::Unix(_) | _ => ConnectionAddr::Tcp(host(&"127.0.0.1".to_owned()), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot_range_entry(host: Value) -> Value {
        let server = |host| Value::Array(vec![host, Value::Int(7001), Value::BulkString(b"id".to_vec())]);
        let replica = server(Value::BulkString(b"10.0.0.9".to_vec()));
        Value::Array(vec![Value::Int(0), Value::Int(5460), server(host), replica])
    }

    fn primary_addr(host: Value) -> ConnectionAddr {
        let entry = slot_range_entry(host);
        let (first, last, host, port) = parse_slot_range(&entry).expect("valid entry");
        assert_eq!((first, last), (0, 5460));
        sibling_addr(&ConnectionAddr::Tcp("seed".to_owned(), 7000), host, port)
    }

    #[test]
    fn missing_host_in_slot_map_means_the_queried_host() {
        let addr = |host: &str| ConnectionAddr::Tcp(host.to_owned(), 7001);
        assert_eq!(primary_addr(Value::BulkString(b"10.0.0.1".to_vec())), addr("10.0.0.1"));
        for missing_host in [Value::Nil, Value::BulkString(Vec::new()), Value::BulkString(b"?".to_vec())] {
            assert_eq!(primary_addr(missing_host), addr("seed"));
        }
    }
}
