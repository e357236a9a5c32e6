//! QUIC: a UDP socket that takes connections, on the same seats and under the same bounds as TCP.
//!
//! Deliberately absent: 0-RTT, whose requests can be replayed and would be charged twice; datagrams; and migration. A client that
//! could move could also send one request under a stranger's address and be told of the stranger.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use domain::Address;
use quinn::{Endpoint, EndpointConfig, IdleTimeout, Incoming, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::http3::Conversation;
use crate::identify::Peer;
use crate::quic_session::{QUIC_V1, Sessions};
use crate::rtt::Rtt;
use crate::serve::note_panic;
use crate::steer::{Mark, MarkedIds, steer};
use crate::vigil::Vigil;
use crate::{Application, Bound, Bounds, Drain, Edge, Tls};

/// Callers whose first packet waits to be looked at.
const WAITING_MAX: usize = 1024;
/// What the callers that wait may send meanwhile, each and all together.
const WAITING_BYTES_MAX: u64 = 16 << 10;
const WAITING_BYTES_TOTAL: u64 = 4 << 20;
/// What a client may send ahead of being read, on one stream and on all: bodies of requests are of no use here.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const WINDOW_BYTES: u32 = 256 << 10;
/// Bytes of answers that may wait for a client's acknowledgement.
const SEND_WINDOW_BYTES: u64 = 1 << 20;
/// The control stream, both of QPACK, and some that have no meaning (RFC 9114, section 6.2.3).
const CONTROL_STREAMS_MAX: u32 = 8;
/// HTTP/3's H3_NO_ERROR.
const NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// A bound UDP socket.
pub struct QuicListener {
    socket: UdpSocket,
    mark: Mark,
}

impl QuicListener {
    /// Binds an address; `[::]` takes IPv4 too where the system says so.
    ///
    /// With `reuse_port` a second process of the same user may bind it too, to take over: from then on it gets all who are new,
    /// and the first keeps its own.
    pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_port(reuse_port)?;
        socket.bind(&address.into())?;
        let (socket, mark) = (socket.into(), Mark::new());
        if reuse_port {
            steer(&socket, mark)?;
        }
        Ok(Self { socket, mark })
    }

    /// The address that it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Serves HTTP/3 on a UDP socket. Needs a running tokio runtime.
///
/// Once the drain has started nobody new is taken, open requests finish, and it returns when all connections have ended;
/// those that outlive the drain's timeout are dropped.
pub async fn serve_quic<S: Application>(
    listener: QuicListener,
    tls: Tls,
    edge: Arc<Edge>,
    application: S,
    drain: Drain,
) -> io::Result<()> {
    let mut config = EndpointConfig::default();
    let mark = listener.mark;
    config.supported_versions(vec![QUIC_V1]).cid_generator(move || Box::new(MarkedIds::new(mark)));
    let server = server_config(tls, &edge.bounds);
    let endpoint = Endpoint::new(config, Some(server), listener.socket, Arc::new(TokioRuntime))?;
    let mut house =
        House { edge, application, drain: drain.clone(), connections: JoinSet::new(), shaking: Arc::new(()) };
    loop {
        tokio::select! {
            () = drain.started() => break,
            Some(ended) = house.connections.join_next() => note_panic(ended),
            Some(incoming) = endpoint.accept() => house.open(incoming),
        }
    }
    let House { edge, mut connections, .. } = house;
    let ended = async {
        while !connections.is_empty() {
            tokio::select! {
                Some(ended) = connections.join_next() => note_panic(ended),
                // Said at once, so that the caller tries TCP.
                Some(incoming) = endpoint.accept() => incoming.refuse(),
            }
        }
        endpoint.wait_idle().await;
    };
    if timeout(edge.bounds.drain_timeout, ended).await.is_err() {
        edge.stats().close(Bound::Drain, connections.len());
        connections.shutdown().await;
    }
    endpoint.close(NO_ERROR, b"");
    Ok(())
}

fn server_config(tls: Tls, bounds: &Bounds) -> ServerConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(bounds.streams_max.into())
        .max_concurrent_uni_streams(CONTROL_STREAMS_MAX.into())
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(IdleTimeout::try_from(bounds.idle_timeout).ok())
        .datagram_receive_buffer_size(None);
    let mut config = ServerConfig::with_crypto(Arc::new(Sessions::new(tls.quic)));
    config
        .transport_config(Arc::new(transport))
        .migration(false)
        .max_incoming(WAITING_MAX)
        .incoming_buffer_size(WAITING_BYTES_MAX)
        .incoming_buffer_size_total(WAITING_BYTES_TOTAL);
    config
}

struct House<S> {
    edge: Arc<Edge>,
    application: S,
    drain: Drain,
    connections: JoinSet<()>,
    /// Held by every handshake that is under way.
    shaking: Arc<()>,
}

impl<S: Application> House<S> {
    /// Takes a caller that has a seat; under load, only one that has proved its address.
    fn open(&mut self, incoming: Incoming) {
        let shaking = Arc::strong_count(&self.shaking) - 1;
        if shaking >= self.edge.bounds.unproven_max && !incoming.remote_address_validated() {
            self.edge.stats().retries.add(1);
            // Fails only for a caller that has proved it.
            let _ = incoming.retry();
            return;
        }
        let Some(seat) = self.edge.find_seat() else {
            incoming.refuse();
            return;
        };
        let address = Address::new(incoming.remote_address().ip());
        let Ok(place) = self.edge.admit(address) else {
            self.edge.stats().close(Bound::Network, 1);
            incoming.refuse();
            return;
        };
        let seat = seat.occupy(&self.edge);
        let (edge, application, drain) = (Arc::clone(&self.edge), self.application.clone(), self.drain.clone());
        let shaking = Arc::clone(&self.shaking);
        self.connections.spawn(async move {
            let connection = shake(incoming, &edge).await;
            drop(shaking);
            if let Some(connection) = connection {
                let agreed = connection.handshake_data().and_then(|agreed| agreed.downcast().ok());
                let rtt = Rtt::quic(connection.clone());
                let peer =
                    Peer { edge: Arc::clone(&edge), address, announced: None, tls: agreed.map(|agreed| *agreed), rtt };
                let vigil = Arc::new(Vigil::new(edge));
                Conversation { application, peer, vigil, drain }.hold(connection).await;
            }
            drop((seat, place));
        });
    }
}

async fn shake(incoming: Incoming, edge: &Edge) -> Option<quinn::Connection> {
    match timeout(edge.bounds.handshake_timeout, incoming.into_future()).await {
        Ok(Ok(connection)) => return Some(connection),
        Ok(Err(_failed)) => edge.stats().handshakes_failed.add(1),
        Err(_late) => edge.stats().close(Bound::Handshake, 1),
    }
    None
}
