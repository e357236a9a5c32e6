//! The listening sockets of a node: inherited through socket activation, or bound by the node.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, ensure};
use ipseity_edge::{InheritedSockets, Listener, QuicListener};

use crate::config::edge::EdgeConfig;

pub(crate) struct ListenSockets {
    inherited: InheritedSockets,
    /// Whether a process that is about to exit may still use the UDP port.
    reuse_udp_port: bool,
    reuse_port: bool,
}

impl ListenSockets {
    /// Takes over the inherited sockets (sd_listen_fds(3)).
    pub(crate) fn open(settings: &EdgeConfig) -> Result<Self> {
        let inherited = match inherited_fd_count()? {
            0 => InheritedSockets::default(),
            count => InheritedSockets::from_listen_fds(count)
                .with_context(|| format!("failed to take over the {count} sockets of LISTEN_FDS"))?,
        };
        let reuse_udp_port = settings.reuse_port || !inherited.is_empty();
        Ok(Self { inherited, reuse_udp_port, reuse_port: settings.reuse_port })
    }

    pub(crate) fn bind_tcp(&mut self, address: SocketAddr) -> Result<Listener> {
        let listener = self.inherited.claim(address).unwrap_or_else(|| Listener::bind(address, self.reuse_port));
        listener.map_err(|error| anyhow!(bind_error_message(address, "TCP", &error)))
    }

    /// UDP sockets are never inherited: two processes that share one would receive each other's packets.
    pub(crate) fn bind_quic(&self, address: SocketAddr) -> Result<QuicListener> {
        let listener = QuicListener::bind(address, self.reuse_udp_port);
        listener.map_err(|error| anyhow!(bind_error_message(address, "UDP", &error)))
    }

    /// Fails if an inherited socket is unused, because its clients would never get a response.
    pub(crate) fn ensure_all_claimed(&self) -> Result<()> {
        let unclaimed = self.inherited.unclaimed_addresses();
        ensure!(
            unclaimed.is_empty(),
            "inherited sockets on {unclaimed:?} are not in [edge] http, [edge] https, [ops] listen, [home] listen or [admin] listen"
        );
        Ok(())
    }
}

fn inherited_fd_count() -> Result<u16> {
    let is_ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    match std::env::var("LISTEN_FDS") {
        Ok(count) if is_ours => count.parse().context("LISTEN_FDS is not a number"),
        Ok(_) | Err(_) => Ok(0),
    }
}

/// Why a node cannot listen, and what to do.
pub(crate) fn bind_error_message(address: SocketAddr, protocol: &str, error: &std::io::Error) -> String {
    let port = address.port();
    let reason = error.kind();
    if reason == ErrorKind::AddrInUse {
        format!(
            "{address} ({protocol}) is in use by another program, or systemd holds it for the service. Stop the program (`ss -lnp 'sport = :{port}'` shows it) or choose another address in [edge], [ops], [home] or [admin]."
        )
    } else if reason == ErrorKind::PermissionDenied {
        format!(
            "This user may not listen on {address} ({protocol}). Grant CAP_NET_BIND_SERVICE to the service or choose a port above 1023."
        )
    } else if reason == ErrorKind::AddrNotAvailable {
        format!(
            "{address} is not an address of this machine. In [edge], [ops], [home] or [admin], use one that `ip address` shows, or 0.0.0.0 or [::] for all."
        )
    } else {
        format!(
            "Failed to listen on {address} ({protocol}): {error}. Choose another address in [edge], [ops], [home] or [admin]."
        )
    }
}
