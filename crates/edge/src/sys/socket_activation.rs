//! Listening sockets that whoever started this process holds for it, as systemd's socket activation hands them over.
//!
//! Such a socket listens on while no process is there, and while two are: nobody is refused when one takes over from the other.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use socket2::{Socket, Type};

use crate::Listener;

/// The first descriptor that is handed over (sd_listen_fds(3)).
const LISTEN_FDS_START: RawFd = 3;

/// Sockets that nobody has claimed yet.
#[derive(Default)]
pub struct InheritedSockets(Vec<TcpListener>);

impl InheritedSockets {
    /// Takes so many descriptors from the third on, each of which must be a listening TCP socket.
    ///
    /// To be called once, before the process has opened anything of its own and only if its parent says that they are there.
    #[expect(unsafe_code, reason = "a descriptor that was handed over is a bare number")]
    pub fn from_listen_fds(count: u16) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for descriptor in (LISTEN_FDS_START..).take(count.into()) {
            // SAFETY: a system call without memory; it fails for a descriptor that is not open.
            if unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: it is open, and by the caller's word nobody else in this process owns it.
            let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
            if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a TCP socket that listens"));
            }
            sockets.push(socket.into());
        }
        Ok(Self(sockets))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The listener on this address, if it was handed over. Needs a running tokio runtime.
    pub fn claim(&mut self, address: SocketAddr) -> Option<io::Result<Listener>> {
        let index =
            self.0.iter().position(|socket| socket.local_addr().is_ok_and(|local_addr| local_addr == address))?;
        Some(Listener::from_inherited(self.0.swap_remove(index)))
    }

    /// The addresses that nobody has claimed.
    #[must_use]
    pub fn unclaimed_addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|socket| socket.local_addr().ok()).collect()
    }
}
