//! The public listeners: plain HTTP, TLS, and HTTP/3 on the TLS ports.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use axum::body::{Body, Bytes};
use http::{Request, Response};
use ipseity_api::PublicService;
use ipseity_domain::{Client, RequestError};
use ipseity_edge::{Application, CertResolver, Drain, EdgeState, Listener, RequestBody, TlsServerConfig, Transport};
use tokio::task::JoinSet;

use crate::config::edge::EdgeConfig;
use crate::node::proxy_trust;
use crate::node::sockets::ListenSockets;

pub(crate) struct PublicListeners {
    pub(crate) edge: Arc<EdgeState>,
    pub(crate) service: PublicService,
    pub(crate) drain: Drain,
}

impl PublicListeners {
    /// Listens on every configured address. Each task ends when its listener has drained.
    pub(crate) fn bind_all(
        &self,
        settings: &EdgeConfig,
        sockets: &mut ListenSockets,
        cert_resolver: Option<&Arc<CertResolver>>,
    ) -> Result<JoinSet<()>> {
        let mut listener_tasks = JoinSet::new();
        for address in &settings.http {
            let transport = proxy_trust::with_proxy_protocol(settings, *address, Transport::Plaintext);
            listener_tasks.spawn(self.serve(sockets.bind_tcp(*address)?, transport));
        }
        for (address, cert_resolver) in settings.https.iter().zip(cert_resolver.into_iter().cycle()) {
            self.bind_tls(settings, sockets, *address, TlsServerConfig::new(cert_resolver), &mut listener_tasks)?;
        }
        Ok(listener_tasks)
    }

    fn bind_tls(
        &self,
        settings: &EdgeConfig,
        sockets: &mut ListenSockets,
        address: SocketAddr,
        tls: TlsServerConfig,
        listener_tasks: &mut JoinSet<()>,
    ) -> Result<()> {
        let listener = sockets.bind_tcp(address)?;
        // The PROXY protocol is only supported over TCP.
        if !settings.http3 || settings.proxy_protocol.contains(&address) {
            let transport = proxy_trust::with_proxy_protocol(settings, address, Transport::Tls(tls));
            listener_tasks.spawn(self.serve(listener, transport));
            return Ok(());
        }
        let address = listener.local_addr()?;
        let port = if settings.http3_advertised_port == 0 { address.port() } else { settings.http3_advertised_port };
        listener_tasks.spawn(self.serve(listener, Transport::Tls(tls.clone().with_alt_svc(port))));
        let quic = sockets.bind_quic(address)?;
        let (edge, application, drain) = (Arc::clone(&self.edge), self.application(), self.drain.clone());
        listener_tasks.spawn(async move {
            if let Err(error) = ipseity_edge::serve_quic(quic, tls, edge, application, drain).await {
                tracing::error!(%error, "HTTP/3 listener failed");
            }
        });
        Ok(())
    }

    fn serve(&self, listener: Listener, transport: Transport) -> impl Future<Output = ()> + Send + use<> {
        ipseity_edge::serve(listener, transport, Arc::clone(&self.edge), self.application(), self.drain.clone())
    }

    fn application(&self) -> PublicApplication {
        PublicApplication(self.service.clone())
    }
}

#[derive(Clone)]
struct PublicApplication(PublicService);

impl Application for PublicApplication {
    type ResponseBody = Body;

    fn handle(
        &self,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static {
        self.0.call(client, request)
    }

    fn refuse(&self, error: RequestError) -> Response<Bytes> {
        self.0.refuse(error)
    }
}
