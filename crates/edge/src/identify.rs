//! Makes a request's [`Client`]: whose address, and what is known of their own connection.

use std::sync::Arc;

use domain::{Address, Client, Connection, HttpProtocol, Tls};
use http::{HeaderMap, Version};

use crate::proxy_header::Announcement;
use crate::rtt::Rtt;
use crate::{Distance, Edge, Origin, PassThrough};

/// The other end of a connection, and what was agreed with it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) edge: Arc<Edge>,
    /// Where the socket ends, or whom the PROXY header names.
    pub(crate) address: Address,
    /// What the PROXY header said, where one is expected.
    pub(crate) announced: Option<Announcement>,
    pub(crate) tls: Option<Tls>,
    pub(crate) rtt: Rtt,
}

impl Peer {
    /// Identifies the client of a request that came over this connection; the round-trip time is measured now.
    pub(crate) fn identify(&self, version: Version, headers: &HeaderMap) -> Client {
        let trust = &self.edge.trust;
        let origin = match self.announced {
            None | Some(Announcement::Client(_)) => trust.origin(self.address, headers),
            // Of a client without a name only the proxy is known, and the headers may be the client's.
            Some(Announcement::Unnamed) => Origin { address: self.address, distance: Distance::Beyond },
            Some(Announcement::Proxy) => Origin { address: self.address, distance: Distance::Here },
        };
        let mut connection = match origin.distance {
            Distance::Here => self.connection(version),
            Distance::NextDoor => trust.reports().read(headers),
            // The proxy's connection is not the client's, and neither is what the proxy reports of the proxy before it.
            Distance::Beyond => Connection::default(),
        };
        connection.colo = connection.colo.or(self.edge.colo);
        Client { address: origin.address, connection }
    }

    /// What is known of this connection when the peer is the client.
    fn connection(&self, version: Version) -> Connection {
        let announced = match self.announced {
            Some(Announcement::Client(announced)) => announced,
            None | Some(Announcement::Proxy | Announcement::Unnamed) => {
                let (http_protocol, rtt_ms) = (protocol(version), self.rtt.measure_ms());
                return Connection { http_protocol, tls: self.tls, rtt_ms, colo: None };
            }
        };
        let (own_http, own_tls) = match self.edge.trust.pass_through() {
            PassThrough::Nothing => (None, None),
            PassThrough::Http => (protocol(version), None),
            PassThrough::Tls => (protocol(version), self.tls),
        };
        // The socket ends at the proxy, so its round-trip time is nobody's.
        Connection {
            http_protocol: own_http.or(announced.http_protocol),
            tls: announced.tls.or(own_tls),
            ..Connection::default()
        }
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
