//! Listening sockets that the parent process passes on, as systemd does (socket activation).
//!
//! Such a socket stays open across restarts, also while two processes share it, so no connection is refused.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use socket2::{Socket, Type};

use crate::Listener;

/// The first inherited file descriptor (sd_listen_fds(3)).
const LISTEN_FDS_START: RawFd = 3;

/// Inherited listening sockets that no listener has claimed yet.
#[derive(Default)]
pub struct InheritedSockets(Vec<TcpListener>);

impl InheritedSockets {
    /// Takes `count` file descriptors, starting with descriptor 3. Each must be a listening TCP socket.
    ///
    /// Call it once, before the process opens other files, and only if `LISTEN_PID` names this process.
    #[expect(unsafe_code, reason = "an inherited descriptor is a plain number")]
    pub fn from_listen_fds(count: u16) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for descriptor in (LISTEN_FDS_START..).take(count.into()) {
            // SAFETY: the call accesses no memory and fails if the descriptor is not open.
            if unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor is open, and the caller guarantees that nothing else in this process owns it.
            let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
            if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
                let message = format!("file descriptor {descriptor} is not a listening TCP socket");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            sockets.push(socket.into());
        }
        Ok(Self(sockets))
    }

    /// Whether no socket is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the listener on this address, if it was inherited. Needs a running tokio runtime.
    pub fn claim(&mut self, address: SocketAddr) -> Option<io::Result<Listener>> {
        let index =
            self.0.iter().position(|socket| socket.local_addr().is_ok_and(|local_addr| local_addr == address))?;
        Some(Listener::from_inherited(self.0.swap_remove(index)))
    }

    /// The addresses of sockets that were not claimed.
    #[must_use]
    pub fn unclaimed_addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }
}
