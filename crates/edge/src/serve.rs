//! The accept loop: take a connection permit, accept a connection, repeat until the drain.

use std::net::SocketAddr;
use std::sync::Arc;

use ipseity_domain::Address;
use tokio::net::TcpStream;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::connection::ListenerContext;
use crate::state::ConnectionPermit;
use crate::{Application, CloseReason, Drain, EdgeState, Listener, Transport};

/// Serves a listener's connections.
///
/// When the drain starts, it stops listening, lets open requests finish, and returns when all connections have ended.
/// Connections that are still open after `drain_timeout` are dropped.
pub async fn serve<S: Application>(
    listener: Listener,
    transport: Transport,
    edge: Arc<EdgeState>,
    application: S,
    drain: Drain,
) {
    let mut connections = JoinSet::new();
    let context = ListenerContext { transport, edge: Arc::clone(&edge), application, drain: drain.clone() };
    loop {
        tokio::select! {
            () = drain.started() => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            (stream, peer, permit) = listener.accept(&edge) => spawn_connection(&mut connections, &context, stream, peer, permit),
        }
    }
    let mut queued = listener.into_queued_connections();
    while let Some(permit) = edge.try_acquire_connection_permit()
        && let Some((stream, peer)) = queued.next()
    {
        spawn_connection(&mut connections, &context, stream, peer, permit);
    }
    drop(queued);
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    };
    if timeout(edge.limits.drain_timeout, all_ended).await.is_err() {
        edge.stats().record_closed(CloseReason::DrainTimeout, connections.len());
        connections.shutdown().await;
    }
}

fn spawn_connection<S: Application>(
    connections: &mut JoinSet<()>,
    context: &ListenerContext<S>,
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
) {
    let permit = permit.into_open_connection(&context.edge);
    connections.spawn(context.clone().serve_connection(stream, Address::new(peer.ip()), permit));
}

/// Logs that a task panicked, without the panic message, which may quote a request.
pub(crate) fn log_panic(ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!("connection task panicked");
    }
}
