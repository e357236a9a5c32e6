//! A proxy in front of the service that counts and rewrites requests and can send each one to another server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct CountingProxy {
    address: SocketAddr,
    request_count: Arc<AtomicUsize>,
}

impl CountingProxy {
    /// Forwards one request per connection to these servers in turn, and all further ones to the last. `rewrite` may
    /// change the text of a request and of its response.
    pub(crate) async fn start(servers: Vec<SocketAddr>, rewrite: fn(String) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a port");
        let proxy =
            Self { address: listener.local_addr().expect("listener has an address"), request_count: Arc::default() };
        let request_count = Arc::clone(&proxy.request_count);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let index = request_count.fetch_add(1, Ordering::Relaxed).min(servers.len() - 1);
                let server = servers[index];
                // If the server is unreachable, the client's connection closes.
                tokio::spawn(async move { forward(client, server, rewrite).await.ok() });
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn request_count(&self) -> usize {
        self.request_count.load(Ordering::Relaxed)
    }
}

async fn forward(mut client: TcpStream, server: SocketAddr, rewrite: fn(String) -> String) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&request).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let mut upstream = TcpStream::connect(server).await?;
    upstream.write_all(rewrite(request).as_bytes()).await?;
    let mut response = Vec::new();
    upstream.read_to_end(&mut response).await?;
    client.write_all(rewrite(String::from_utf8_lossy(&response).into_owned()).as_bytes()).await?;
    client.shutdown().await
}
