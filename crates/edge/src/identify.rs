//! Identifies the [`Client`] of a request: its address, and the facts about its connection.

use std::sync::Arc;

use http::{HeaderMap, Version};
use ipseity_domain::{Address, Client, ConnectionFacts, HttpProtocol, TlsInfo};

use crate::proxy::protocol::ProxyHeader;
use crate::sys::rtt::Rtt;
use crate::{ClientOrigin, Distance, EdgeState, PassThrough};

/// The other end of a connection, and what was negotiated with it.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) edge: Arc<EdgeState>,
    /// The address of the socket's peer, or of the client in the PROXY header.
    pub(crate) address: Address,
    /// The PROXY header, on listeners that expect one.
    pub(crate) proxy_header: Option<ProxyHeader>,
    pub(crate) tls: Option<TlsInfo>,
    pub(crate) rtt: Rtt,
}

impl Peer {
    /// Identifies the client of a request on this connection. Reads the round-trip time at the moment of the call.
    pub(crate) fn identify(&self, version: Version, headers: &HeaderMap) -> Client {
        let trust = &self.edge.trust;
        let origin = match self.proxy_header {
            None | Some(ProxyHeader::Client(_)) => {
                let origin = trust.client_origin(self.address, headers);
                if origin.address == Address::UNKNOWN {
                    self.edge.note_unidentified_client();
                }
                origin
            }
            // The header does not name the client, and the client may have written the other headers.
            Some(ProxyHeader::Unknown) => ClientOrigin { address: Address::UNKNOWN, distance: Distance::Unknown },
            Some(ProxyHeader::Local) => ClientOrigin { address: self.address, distance: Distance::Direct },
        };
        let mut connection = match origin.distance {
            Distance::Direct => self.client_connection(version),
            Distance::OneHop => trust.connection_headers().read_connection(headers),
            // Neither the proxy's connection nor what it reports about the proxy before it is the client's.
            Distance::Unknown => ConnectionFacts::default(),
        };
        connection.colo = connection.colo.or(self.edge.colo);
        Client { address: origin.address, connection }
    }

    /// The facts about this connection if the peer is the client.
    fn client_connection(&self, version: Version) -> ConnectionFacts {
        let proxied_client = match self.proxy_header {
            Some(ProxyHeader::Client(proxied_client)) => proxied_client,
            None | Some(ProxyHeader::Local | ProxyHeader::Unknown) => {
                return ConnectionFacts {
                    http_protocol: http_protocol(version),
                    is_encrypted: Some(self.tls.is_some()),
                    tls: self.tls,
                    rtt_ms: self.rtt.measure_ms(),
                    colo: None,
                };
            }
        };
        let (passed_http, passed_tls, passed_encryption) = match self.edge.trust.pass_through() {
            PassThrough::Nothing => (None, None, None),
            PassThrough::Http => (http_protocol(version), None, None),
            PassThrough::Tls => (http_protocol(version), self.tls, Some(self.tls.is_some())),
        };
        // The socket ends at the proxy, so its round-trip time is not the client's.
        ConnectionFacts {
            http_protocol: passed_http.or(proxied_client.http_protocol),
            // A proxy may call a connection plain although it passes the client's TLS on.
            is_encrypted: passed_tls.map(|_| true).or(proxied_client.is_encrypted).or(passed_encryption),
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
