//! Callers of the service: one keep-alive HTTP/1.1 connection, and curl for TLS and HTTP/2.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;

use crate::command::{CliOutput, run};

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Header lines.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Reply {
    /// A header's first value, if it is there and text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("status {} with a body that is not JSON", self.status))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A caller with one connection, opened when it is needed; no request is ever sent twice.
#[derive(Debug)]
pub struct Caller {
    server: SocketAddr,
    source: Option<IpAddr>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

impl Caller {
    /// A caller of a clear listener.
    #[must_use]
    pub const fn new(server: SocketAddr) -> Self {
        Self { server, source: None, connection: None }
    }

    /// A caller of a clear listener that calls from this address, of the server's family.
    #[must_use]
    pub const fn from_address(server: SocketAddr, source: IpAddr) -> Self {
        Self { server, source: Some(source), connection: None }
    }

    /// Asks for a path with GET.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        self.send(Method::GET, path, headers).await
    }

    /// Asks for a path with any method and no body.
    pub async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, self.server.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::new())?;
        let mut connection = self.ready_connection().await?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.connection = Some(connection);
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// The connection of the request before, if the server has kept it, or a new one.
    async fn ready_connection(&mut self) -> Result<SendRequest<Empty<Bytes>>> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let stream = match self.source {
            None => TcpStream::connect(self.server).await?,
            Some(source) => {
                let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                socket.bind((source, 0).into())?;
                socket.connect(self.server).await?
            }
        };
        stream.set_nodelay(true)?;
        let (connection, driver) = handshake(TokioIo::new(stream)).await?;
        // Its error reaches whoever waits for an answer.
        tokio::spawn(driver);
        Ok(connection)
    }
}

/// Runs curl, silent but for errors, with these arguments.
pub async fn curl(arguments: &[&str]) -> Result<CliOutput> {
    run(&mut curl_command(arguments)).await
}

pub(crate) fn curl_command(arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30"]).args(arguments);
    command
}
