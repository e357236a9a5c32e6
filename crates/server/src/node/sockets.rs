//! The sockets that a node listens on: handed over by whoever started it, or bound by itself.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use ipseity_edge::{InheritedSockets, Listener, QuicListener};

use crate::config;

pub(crate) struct ListenSockets {
    inherited: InheritedSockets,
    /// Whether another process may be there, which is about to leave.
    reuse_udp_port: bool,
    reuse_port: bool,
}

impl ListenSockets {
    /// Takes what the environment says was handed over (sd_listen_fds(3)).
    pub(crate) fn open(settings: &config::EdgeConfig) -> Result<Self> {
        let inherited = match inherited_fd_count()? {
            0 => InheritedSockets::default(),
            count => InheritedSockets::from_listen_fds(count)
                .with_context(|| format!("LISTEN_FDS is {count}, but the sockets cannot be taken over"))?,
        };
        let reuse_udp_port = settings.reuse_port || !inherited.is_empty();
        Ok(Self { inherited, reuse_udp_port, reuse_port: settings.reuse_port })
    }

    pub(crate) fn bind_tcp(&mut self, address: SocketAddr) -> Result<Listener> {
        let listener = self.inherited.claim(address).unwrap_or_else(|| Listener::bind(address, self.reuse_port));
        listener.with_context(|| bind_error_message(address))
    }

    /// A UDP socket is never handed over: two processes that read from one would take each other's packets.
    pub(crate) fn bind_quic(&self, address: SocketAddr) -> Result<QuicListener> {
        QuicListener::bind(address, self.reuse_udp_port).with_context(|| bind_error_message(address))
    }

    /// Fails if a socket was handed over that no setting names: its callers would wait for ever.
    pub(crate) fn ensure_all_claimed(&self) -> Result<()> {
        let unclaimed = self.inherited.unclaimed_addresses();
        ensure!(
            unclaimed.is_empty(),
            "sockets on {unclaimed:?} were handed over, but [edge] http, [edge] https and [ops] listen name none of them"
        );
        Ok(())
    }
}

fn inherited_fd_count() -> Result<u16> {
    let is_ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    match std::env::var("LISTEN_FDS") {
        Ok(count) if is_ours => count.parse().context("LISTEN_FDS is no number"),
        Ok(_) | Err(_) => Ok(0),
    }
}

fn bind_error_message(address: SocketAddr) -> String {
    format!("{address} cannot be listened on; is another process there?")
}
