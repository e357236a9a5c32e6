//! Reserves ports on 127.0.0.1 for servers that are killed and restarted.
//!
//! Ports are below the kernel's ephemeral range. Otherwise a client that retries a dead server may get that port as its
//! source port, connect to itself and block the restart. Test processes reserve a port by binding an abstract socket
//! with its number, which the kernel releases when they exit.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use anyhow::{Context, Result};

const PORT_RANGE: Range<u16> = 12_000..32_000;
const ATTEMPTS_MAX: usize = 1_000;

/// A port that no other test process uses.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    _reservation: UnixListener,
}

impl ReservedPort {
    /// Reserves a free port.
    pub fn reserve_free() -> Result<Self> {
        (0..ATTEMPTS_MAX)
            .find_map(|_| Self::try_reserve(fastrand::u16(PORT_RANGE)))
            .context("no free port on 127.0.0.1")
    }

    fn try_reserve(number: u16) -> Option<Self> {
        let name = UnixAddr::from_abstract_name(format!("ipseity-port-{number}")).ok()?;
        let reservation = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _reservation: reservation })
    }

    /// Port number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// Address on 127.0.0.1.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}
