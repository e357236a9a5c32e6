//! Listening sockets. A listener knows nothing of what its connections speak.

use std::io::{self, ErrorKind};
use std::iter;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

use crate::EdgeState;
use crate::state::ConnectionPermit;

const BACKLOG: u32 = 1024;

/// A bound socket that takes connections.
pub struct Listener {
    socket: TcpListener,
    /// Whether another process has the same socket, so that its queue outlives this listener.
    is_shared: bool,
}

impl Listener {
    /// Binds an address; `[::]` takes IPv4 too where the system says so. Needs a running tokio runtime.
    ///
    /// With `reuse_port` a second process of the same user may bind it too, and the kernel deals new connections out to both.
    pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restarted node must not wait for the connections of the one before it.
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(reuse_port)?;
        socket.bind(address)?;
        Ok(Self { socket: socket.listen(BACKLOG)?, is_shared: false })
    }

    /// Takes over a socket that listens already. Needs a running tokio runtime.
    pub(crate) fn from_inherited(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpListener::from_std(socket)?, is_shared: true })
    }

    /// The address that it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Waits for a seat, then for a connection; outlasts every error.
    pub(crate) async fn accept(&self, edge: &EdgeState) -> (TcpStream, SocketAddr, ConnectionPermit) {
        loop {
            let permit = edge.acquire_connection_permit().await;
            match self.socket.accept().await {
                Ok((stream, peer)) => return (stream, peer, permit),
                Err(error) if is_per_connection_error(&error) => {}
                Err(error) => {
                    // Out of descriptors or memory: the connection stays in the queue, so trying at once would spin.
                    edge.stats().accept_errors.add(1);
                    tracing::warn!(%error, "a connection could not be accepted; trying again");
                    sleep(edge.limits.accept_backoff).await;
                }
            }
        }
    }

    /// Stops listening; gives the connections that the kernel had already taken, which would get a reset otherwise. Those of a
    /// shared socket are left to whoever else has it.
    pub(crate) fn into_queued_connections(self) -> impl Iterator<Item = (TcpStream, SocketAddr)> {
        let listener = self.socket.into_std().ok().filter(|_| !self.is_shared);
        iter::from_fn(move || {
            let (stream, peer) = listener.as_ref()?.accept().ok()?;
            stream.set_nonblocking(true).ok()?;
            Some((TcpStream::from_std(stream).ok()?, peer))
        })
    }
}

/// Whether the error is one connection's, which is gone by then, and says nothing of the next.
fn is_per_connection_error(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused)
}
