//! A proxy before the service that counts requests, changes them or their answers, and can lead to another server each
//! time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Relay {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Relay {
    /// Passes requests on to these servers in turn, the last one again and again, one on each connection. `edit` may
    /// change the text of a request and of its answer.
    pub(crate) async fn start(servers: Vec<SocketAddr>, edit: fn(String) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let relay = Self { address: listener.local_addr().expect("an address"), asked: Arc::default() };
        let asked = Arc::clone(&relay.asked);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let turn = asked.fetch_add(1, Ordering::Relaxed).min(servers.len() - 1);
                let server = servers[turn];
                // A server that is not there ends in a connection that is closed.
                tokio::spawn(async move { pass(caller, server, edit).await.ok() });
            }
        });
        relay
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests came.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

async fn pass(mut caller: TcpStream, server: SocketAddr, edit: fn(String) -> String) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if caller.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&request).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let mut upstream = TcpStream::connect(server).await?;
    upstream.write_all(edit(request).as_bytes()).await?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer).await?;
    caller.write_all(edit(String::from_utf8_lossy(&answer).into_owned()).as_bytes()).await?;
    caller.shutdown().await
}
