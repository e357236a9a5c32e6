//! Makes a request's [`Client`]: whose address, and what is known of their own connection.

use std::sync::Arc;

use domain::{Address, Client, Connection, HttpProtocol, Tls};
use http::{HeaderMap, Version};

use crate::Edge;
use crate::rtt::Rtt;

/// The other end of a connection, and what was agreed with it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) edge: Arc<Edge>,
    pub(crate) address: Address,
    pub(crate) tls: Option<Tls>,
    pub(crate) rtt: Rtt,
}

impl Peer {
    /// Identifies the client of a request that came over this connection; the round-trip time is measured now.
    pub(crate) fn identify(&self, version: Version, headers: &HeaderMap) -> Client {
        let origin = self.edge.trust.origin(self.address, headers);
        let colo = self.edge.colo;
        let connection = if origin.forwarded {
            // This connection is the proxy's: its facts would be made up for the client.
            Connection { colo, ..Connection::default() }
        } else {
            Connection { http_protocol: protocol(version), tls: self.tls, rtt_ms: self.rtt.measure_ms(), colo }
        };
        Client { address: origin.address, connection }
    }
}

fn protocol(version: Version) -> Option<HttpProtocol> {
    match version {
        Version::HTTP_10 => Some(HttpProtocol::Http10),
        Version::HTTP_11 => Some(HttpProtocol::Http11),
        Version::HTTP_2 => Some(HttpProtocol::Http2),
        Version::HTTP_3 => Some(HttpProtocol::Http3),
        _ => None,
    }
}
