//! The listening sockets of a node: inherited through socket activation, or bound by the node.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
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
        listener.with_context(|| bind_error_message(address))
    }

    /// UDP sockets are never inherited: two processes that share one would receive each other's packets.
    pub(crate) fn bind_quic(&self, address: SocketAddr) -> Result<QuicListener> {
        QuicListener::bind(address, self.reuse_udp_port).with_context(|| bind_error_message(address))
    }

    /// Fails if an inherited socket is unused, because its clients would never get a response.
    pub(crate) fn ensure_all_claimed(&self) -> Result<()> {
        let unclaimed = self.inherited.unclaimed_addresses();
        ensure!(
            unclaimed.is_empty(),
            "inherited sockets on {unclaimed:?} are not in [edge] http, [edge] https, [ops] listen or [home] listen"
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

fn bind_error_message(address: SocketAddr) -> String {
    format!("failed to listen on {address}. Check whether another process uses it.")
}
