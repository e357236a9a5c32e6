//! Makes a request's [`Client`]: whose address, and what is known of their own connection.

use std::sync::Arc;

use http::{HeaderMap, Version};
use ipseity_domain::{Address, Client, ConnectionFacts, HttpProtocol, TlsInfo};

use crate::proxy::protocol::ProxyHeader;
use crate::sys::rtt::Rtt;
use crate::{ClientOrigin, Distance, EdgeState, PassThrough};

/// The other end of a connection, and what was agreed with it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) edge: Arc<EdgeState>,
    /// Where the socket ends, or whom the PROXY header names.
    pub(crate) address: Address,
    /// What the PROXY header said, where one is expected.
    pub(crate) proxy_header: Option<ProxyHeader>,
    pub(crate) tls: Option<TlsInfo>,
    pub(crate) rtt: Rtt,
}

impl Peer {
    /// Identifies the client of a request that came over this connection; the round-trip time is measured now.
    pub(crate) fn identify(&self, version: Version, headers: &HeaderMap) -> Client {
        let trust = &self.edge.trust;
        let origin = match self.proxy_header {
            None | Some(ProxyHeader::Client(_)) => trust.client_origin(self.address, headers),
            // Of a client without a name only the proxy is known, and the headers may be the client's.
            Some(ProxyHeader::Unknown) => ClientOrigin { address: self.address, distance: Distance::Unknown },
            Some(ProxyHeader::Local) => ClientOrigin { address: self.address, distance: Distance::Direct },
        };
        let mut connection = match origin.distance {
            Distance::Direct => self.client_connection(version),
            Distance::OneHop => trust.connection_headers().read_connection(headers),
            // The proxy's connection is not the client's, and neither is what the proxy reports of the proxy before it.
            Distance::Unknown => ConnectionFacts::default(),
        };
        connection.colo = connection.colo.or(self.edge.colo);
        Client { address: origin.address, connection }
    }

    /// What is known of this connection when the peer is the client.
    fn client_connection(&self, version: Version) -> ConnectionFacts {
        let proxied_client = match self.proxy_header {
            Some(ProxyHeader::Client(proxied_client)) => proxied_client,
            None | Some(ProxyHeader::Local | ProxyHeader::Unknown) => {
                let (http_protocol, rtt_ms) = (http_protocol(version), self.rtt.measure_ms());
                return ConnectionFacts { http_protocol, tls: self.tls, rtt_ms, colo: None };
            }
        };
        let (passed_http, passed_tls) = match self.edge.trust.pass_through() {
            PassThrough::Nothing => (None, None),
            PassThrough::Http => (http_protocol(version), None),
            PassThrough::Tls => (http_protocol(version), self.tls),
        };
        // The socket ends at the proxy, so its round-trip time is nobody's.
        ConnectionFacts {
            http_protocol: passed_http.or(proxied_client.http_protocol),
            tls: proxied_client.tls.or(passed_tls),
            ..ConnectionFacts::default()
        }
    }
}

fn http_protocol(version: Version) -> Option<HttpProtocol> {
    match version {
        Version::HTTP_10 => Some(HttpProtocol::Http10),
        Version::HTTP_11 => Some(HttpProtocol::Http11),
        Version::HTTP_2 => Some(HttpProtocol::Http2),
        Version::HTTP_3 => Some(HttpProtocol::Http3),
        _ => None,
    }
}
