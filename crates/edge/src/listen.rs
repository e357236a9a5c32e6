//! Listening TCP sockets, independent of the protocol of their connections.

use std::io::{self, ErrorKind};
use std::iter;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

use crate::EdgeState;
use crate::state::ConnectionPermit;

const BACKLOG: u32 = 1024;

/// A listening TCP socket.
pub struct Listener {
    socket: TcpListener,
    /// Whether another process holds the same socket, so that its queue outlives this listener.
    is_shared: bool,
}

impl Listener {
    /// Binds an address. `[::]` accepts IPv4 too if the system is configured so. Needs a running tokio runtime.
    ///
    /// With `reuse_port`, a second process of the same user may bind the address, and the kernel distributes new
    /// connections between both.
    pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted node can bind while connections of the previous process are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(reuse_port)?;
        socket.bind(address)?;
        Ok(Self { socket: socket.listen(BACKLOG)?, is_shared: false })
    }

    /// Takes over a socket that is already listening. Needs a running tokio runtime.
    pub(crate) fn from_inherited(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpListener::from_std(socket)?, is_shared: true })
    }

    /// The bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The socket, for connections that do not come from clients.
    pub fn into_socket(self) -> TcpListener {
        self.socket
    }

    /// Waits for a connection permit, then for a connection. Retries after every error.
    pub(crate) async fn accept(&self, edge: &EdgeState) -> (TcpStream, SocketAddr, ConnectionPermit) {
        loop {
            let permit = edge.acquire_connection_permit().await;
            match self.socket.accept().await {
                Ok((stream, peer)) => return (stream, peer, permit),
                Err(error) if is_per_connection_error(&error) => {}
                Err(error) => {
                    // Out of file descriptors or memory. The connection stays in the queue, so a retry now would spin.
                    edge.stats().accept_errors.add(1);
                    tracing::warn!(%error, "accept failed");
                    sleep(edge.limits.accept_backoff).await;
                }
            }
        }
    }

    /// Stops listening and returns the connections in the kernel's queue, which would otherwise be reset. The queue of
    /// a shared socket is left to the other process.
    pub(crate) fn into_queued_connections(self) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
        let listener = self.socket.into_std().ok().filter(|_| !self.is_shared);
        iter::from_fn(move || {
            let (stream, peer) = listener.as_ref()?.accept().ok()?;
            stream.set_nonblocking(true).ok()?;
            Some((TcpStream::from_std(stream).ok()?, peer))
        })
    }
}

/// Whether the error concerns one connection that is already closed, and not the listener.
fn is_per_connection_error(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused)
}
