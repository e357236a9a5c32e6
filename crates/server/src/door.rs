//! The public listeners: clear, TLS, and HTTP/3 beside TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use api::Front;
use edge::{Application, Drain, Edge, Listener, Tls, Transport, Wardrobe};
use tokio::task::JoinSet;

use crate::config;
use crate::proxies;
use crate::sockets::Sockets;

/// What all public listeners share.
pub(crate) struct Door {
    pub(crate) edge: Arc<Edge>,
    pub(crate) public: Front,
    pub(crate) drain: Drain,
}

impl Door {
    /// Listens on every address that the settings name; each task ends when its listener has drained.
    pub(crate) fn open(
        &self,
        settings: &config::Edge,
        sockets: &mut Sockets,
        wardrobe: Option<&Arc<Wardrobe>>,
    ) -> Result<JoinSet<()>> {
        let mut listeners = JoinSet::new();
        for address in &settings.http {
            let transport = proxies::announced(settings, *address, Transport::Clear);
            listeners.spawn(self.serve(sockets.listen(*address)?, transport));
        }
        for (address, wardrobe) in settings.https.iter().zip(wardrobe.into_iter().cycle()) {
            self.open_secure(settings, sockets, *address, Tls::new(wardrobe), &mut listeners)?;
        }
        Ok(listeners)
    }

    fn open_secure(
        &self,
        settings: &config::Edge,
        sockets: &mut Sockets,
        address: SocketAddr,
        tls: Tls,
        listeners: &mut JoinSet<()>,
    ) -> Result<()> {
        let listener = sockets.listen(address)?;
        // A proxy that announces its clients does so on TCP alone.
        if !settings.http3 || settings.proxy_protocol.contains(&address) {
            let transport = proxies::announced(settings, address, Transport::Tls(tls));
            listeners.spawn(self.serve(listener, transport));
            return Ok(());
        }
        let address = listener.local_addr()?;
        let port = if settings.http3_port == 0 { address.port() } else { settings.http3_port };
        listeners.spawn(self.serve(listener, Transport::Tls(tls.clone().announcing(port))));
        let quic = sockets.listen_quic(address)?;
        let (edge, public, drain) = (Arc::clone(&self.edge), self.application(), self.drain.clone());
        listeners.spawn(async move {
            if let Err(error) = edge::serve_quic(quic, tls, edge, public, drain).await {
                tracing::error!(%error, "HTTP/3 is not served");
            }
        });
        Ok(())
    }

    fn serve(&self, listener: Listener, transport: Transport) -> impl Future<Output = ()> + Send + use<> {
        edge::serve(listener, transport, Arc::clone(&self.edge), self.application(), self.drain.clone())
    }

    fn application(&self) -> impl Application + use<> {
        let public = self.public.clone();
        move |client, request| public.answer(client, request)
    }
}
