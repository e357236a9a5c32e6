//! Which server owns which slot: in a cluster as it says itself; a store that is none owns them all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{ConnectionAddr, Value};

use crate::link::{Link, Session};
use crate::outage::LedgerError;
use crate::slot::Slot;

/// What was learnt a moment ago is not asked again.
const FRESH: Duration = Duration::from_millis(100);

pub(crate) struct Map {
    ranges: Vec<Range>,
    /// Who told of the ranges; for slots outside of them it is asked too, and says itself why it cannot serve them.
    teller: Arc<Link>,
    learnt: Instant,
}

struct Range {
    first: u16,
    last: u16,
    owner: Arc<Link>,
}

impl Map {
    /// A store that is no cluster.
    pub(crate) fn of_one(link: Arc<Link>) -> Self {
        Self { ranges: Vec::new(), teller: link, learnt: Instant::now() }
    }

    /// A cluster as one of its servers describes it.
    pub(crate) fn of_cluster(
        teller: Arc<Link>,
        view: &View,
        mut link_to: impl FnMut(ConnectionAddr) -> Result<Arc<Link>, LedgerError>,
    ) -> Result<Self, LedgerError> {
        let mut ranges = Vec::new();
        for entry in &view.slots {
            let (first, last, host, port) = parse(entry).ok_or(LedgerError::Strange("map of slots"))?;
            ranges.push(Range { first, last, owner: link_to(beside(teller.address(), host, port))? });
        }
        Ok(Self { ranges, teller, learnt: Instant::now() })
    }

    pub(crate) fn owner(&self, slot: Slot) -> &Arc<Link> {
        let range = self.ranges.iter().find(|range| (range.first..=range.last).contains(&slot.0));
        range.map_or(&self.teller, |range| &range.owner)
    }

    /// All that own a slot.
    pub(crate) fn owners(&self) -> Vec<Arc<Link>> {
        let mut owners: Vec<Arc<Link>> = Vec::new();
        for owner in self.ranges.iter().map(|range| &range.owner) {
            if !owners.iter().any(|known| Arc::ptr_eq(known, owner)) {
                owners.push(Arc::clone(owner));
            }
        }
        if owners.is_empty() {
            owners.push(Arc::clone(&self.teller));
        }
        owners
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.learnt.elapsed() < FRESH
    }
}

/// What a server of a cluster says of it.
pub(crate) struct View {
    /// Rises with every failover and every slot that was moved: the greater, the newer.
    pub(crate) epoch: u64,
    slots: Vec<Value>,
}

impl View {
    pub(crate) async fn ask(session: &Session) -> Result<Self, LedgerError> {
        let mut both = redis::pipe();
        both.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
        let (info, slots): (String, Vec<Value>) = both.query_async(&mut session.connection.clone()).await?;
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.parse().ok());
        Ok(Self { epoch: epoch.ok_or(LedgerError::Strange("epoch"))?, slots })
    }
}

/// `[first, last, [host, port, …], replicas …]`
fn parse(entry: &Value) -> Option<(u16, u16, &str, u16)> {
    let [Value::Int(first), Value::Int(last), primary, ..] = entry.as_sequence()? else { return None };
    let [host, Value::Int(port), ..] = primary.as_sequence()? else { return None };
    let host = if let Value::BulkString(host) = host { std::str::from_utf8(host).ok()? } else { "" };
    Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, host, u16::try_from(*port).ok()?))
}

/// The address of another server of a cluster, reached as this one is. One that does not know its own host, or does not tell it, is meant to
/// be reached at the host that was asked.
pub(crate) fn beside(asked: &ConnectionAddr, host: &str, port: u16) -> ConnectionAddr {
    let host = |own: &String| if host.is_empty() || host == "?" { own.clone() } else { host.to_owned() };
    match asked {
        ConnectionAddr::TcpTls { host: own, insecure, tls_params, .. } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            ConnectionAddr::TcpTls { host: host(own), port, insecure, tls_params }
        }
        ConnectionAddr::Tcp(own, _) => ConnectionAddr::Tcp(host(own), port),
        // A socket file has no host.
        ConnectionAddr::Unix(_) | _ => ConnectionAddr::Tcp(host(&"127.0.0.1".to_owned()), port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(host: Value) -> Value {
        let server = |host| Value::Array(vec![host, Value::Int(7001), Value::BulkString(b"id".to_vec())]);
        let replica = server(Value::BulkString(b"10.0.0.9".to_vec()));
        Value::Array(vec![Value::Int(0), Value::Int(5460), server(host), replica])
    }

    fn told(host: Value) -> ConnectionAddr {
        let entry = entry(host);
        let (first, last, host, port) = parse(&entry).expect("an entry");
        assert_eq!((first, last), (0, 5460));
        beside(&ConnectionAddr::Tcp("seed".to_owned(), 7000), host, port)
    }

    #[test]
    fn a_server_that_does_not_tell_its_host_is_reached_at_the_one_that_was_asked() {
        let at = |host: &str| ConnectionAddr::Tcp(host.to_owned(), 7001);
        assert_eq!(told(Value::BulkString(b"10.0.0.1".to_vec())), at("10.0.0.1"));
        for untold in [Value::Nil, Value::BulkString(Vec::new()), Value::BulkString(b"?".to_vec())] {
            assert_eq!(told(untold), at("seed"));
        }
    }
}
