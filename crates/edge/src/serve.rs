//! The accept loop: a seat, then a connection, until the drain.

use std::net::SocketAddr;
use std::sync::Arc;

use domain::Address;
use tokio::net::TcpStream;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::connection::House;
use crate::edge::Seat;
use crate::{Application, Bound, Drain, Edge, Listener, Tls};

/// What a listener's connections speak beneath HTTP.
#[derive(Clone)]
pub enum Transport {
    /// Clear text: HTTP/1.1, or HTTP/2 with prior knowledge.
    Clear,
    /// TLS: HTTP/1.1 or HTTP/2, as agreed by ALPN.
    Tls(Tls),
    /// A PROXY header, from trusted proxies and nobody else, and then one of the others.
    Announced(Box<Self>),
}

/// Serves a listener's connections.
///
/// Once the drain has started it stops listening, lets open requests finish, and returns when all connections have ended;
/// those that outlive the drain's timeout are dropped.
pub async fn serve<S: Application>(
    listener: Listener,
    transport: Transport,
    edge: Arc<Edge>,
    application: S,
    drain: Drain,
) {
    let mut connections = JoinSet::new();
    let house = House { transport, edge: Arc::clone(&edge), application, drain: drain.clone() };
    loop {
        tokio::select! {
            () = drain.started() => break,
            Some(ended) = connections.join_next() => note_panic(ended),
            (stream, peer, seat) = listener.accept(&edge) => open(&mut connections, &house, stream, peer, seat),
        }
    }
    let mut waiting = listener.close();
    while let Some(seat) = edge.find_seat()
        && let Some((stream, peer)) = waiting.next()
    {
        open(&mut connections, &house, stream, peer, seat);
    }
    drop(waiting);
    let ended = async {
        while let Some(ended) = connections.join_next().await {
            note_panic(ended);
        }
    };
    if timeout(edge.bounds.drain_timeout, ended).await.is_err() {
        edge.stats().close(Bound::Drain, connections.len());
        connections.shutdown().await;
    }
}

fn open<S: Application>(
    connections: &mut JoinSet<()>,
    house: &House<S>,
    stream: TcpStream,
    peer: SocketAddr,
    seat: Seat,
) {
    let seat = seat.occupy(&house.edge);
    connections.spawn(house.clone().receive(stream, Address::new(peer.ip()), seat));
}

/// The panic's own text is left out: it may quote a request.
pub(crate) fn note_panic(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("a connection's task panicked");
    }
}
