//! The sockets that a node listens on: handed over by whoever started it, or bound by itself.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use edge::{Inherited, Listener, QuicListener};

use crate::config;

pub(crate) struct Sockets {
    inherited: Inherited,
    /// Whether another process may be there, which is about to leave.
    takes_over: bool,
    reuse_port: bool,
}

impl Sockets {
    /// Takes what the environment says was handed over (sd_listen_fds(3)).
    pub(crate) fn open(settings: &config::Edge) -> Result<Self> {
        let inherited = match handed_over()? {
            0 => Inherited::default(),
            count => Inherited::take(count)
                .with_context(|| format!("LISTEN_FDS is {count}, but the sockets cannot be taken over"))?,
        };
        let takes_over = settings.reuse_port || !inherited.is_empty();
        Ok(Self { inherited, takes_over, reuse_port: settings.reuse_port })
    }

    pub(crate) fn listen(&mut self, address: SocketAddr) -> Result<Listener> {
        let listener = self.inherited.claim(address).unwrap_or_else(|| Listener::bind(address, self.reuse_port));
        listener.with_context(|| unbindable(address))
    }

    /// A UDP socket is never handed over: two processes that read from one would take each other's packets.
    pub(crate) fn listen_quic(&self, address: SocketAddr) -> Result<QuicListener> {
        QuicListener::bind(address, self.takes_over).with_context(|| unbindable(address))
    }

    /// Fails if a socket was handed over that no setting names: its callers would wait for ever.
    pub(crate) fn all_claimed(&self) -> Result<()> {
        let unclaimed = self.inherited.unclaimed();
        ensure!(
            unclaimed.is_empty(),
            "sockets on {unclaimed:?} were handed over, but [edge] http, [edge] https and [ops] listen name none of them"
        );
        Ok(())
    }
}

fn handed_over() -> Result<u16> {
    let is_ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    match std::env::var("LISTEN_FDS") {
        Ok(count) if is_ours => count.parse().context("LISTEN_FDS is no number"),
        Ok(_) | Err(_) => Ok(0),
    }
}

fn unbindable(address: SocketAddr) -> String {
    format!("{address} cannot be listened on; is another process there?")
}
