//! Callers of the service: one keep-alive HTTP/1.1 connection, and curl for TLS and HTTP/2.
//!
//! No cookies and no redirects: whoever wants a browser makes one of these parts.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;

use crate::command::{CommandOutput, run_command};

/// An answer.
#[derive(Debug, Clone)]
pub struct TestResponse {
    /// Status code.
    pub status: u16,
    /// Header lines.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl TestResponse {
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
pub struct TestClient {
    server: SocketAddr,
    source_ip: Option<IpAddr>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl TestClient {
    /// A caller of a clear listener.
    #[must_use]
    pub const fn new(server: SocketAddr) -> Self {
        Self { server, source_ip: None, connection: None }
    }

    /// A caller of a clear listener that calls from this address, of the server's family.
    #[must_use]
    pub const fn from_source(server: SocketAddr, source: IpAddr) -> Self {
        Self { server, source_ip: Some(source), connection: None }
    }

    /// Asks for a path with GET.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<TestResponse> {
        self.send(Method::GET, path, headers).await
    }

    /// Asks for a path with any method and no body.
    pub async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<TestResponse> {
        self.send_request(method, path, headers, Bytes::new()).await
    }

    /// Sends a form, as browsers do.
    pub async fn post_form(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, &str)],
    ) -> Result<TestResponse> {
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        self.post(path, &[&kind, headers].concat(), encode_form(fields)).await
    }

    /// Sends a body of any kind.
    pub async fn post(&mut self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Result<TestResponse> {
        self.send_request(Method::POST, path, headers, body.into()).await
    }

    /// Asks for a path with GET and gives the connection up to its answer, to be read as it comes.
    pub async fn get_streaming(mut self, path: &str, headers: &[(&str, &str)]) -> Result<StreamingResponse> {
        let request = self.build_request(Method::GET, path, headers, Bytes::new())?;
        let mut connection = self.ready_connection().await?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        Ok(StreamingResponse { status: head.status.as_u16(), headers: head.headers, body, _connection: connection })
    }

    async fn send_request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<TestResponse> {
        let request = self.build_request(method, path, headers, body)?;
        let mut connection = self.ready_connection().await?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.connection = Some(connection);
        Ok(TestResponse { status: head.status.as_u16(), headers: head.headers, body })
    }

    fn build_request(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, self.server.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(request.body(Full::new(body))?)
    }

    /// The connection of the request before, if the server has kept it, or a new one.
    async fn ready_connection(&mut self) -> Result<SendRequest<Full<Bytes>>> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let stream = match self.source_ip {
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

/// An answer that is read while it comes.
#[derive(Debug)]
pub struct StreamingResponse {
    /// Status code.
    pub status: u16,
    /// Header lines.
    pub headers: HeaderMap,
    body: Incoming,
    /// Dropped, it would end the answer.
    _connection: SendRequest<Full<Bytes>>,
}

impl StreamingResponse {
    /// The next piece of the body; `None` at its end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(chunk) = frame?.into_data() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}

/// Fields as `application/x-www-form-urlencoded`: every byte but letters and digits escaped, which any reader takes.
fn encode_form(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        let escaped = |byte: u8| match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        text.bytes().map(escaped).collect()
    };
    let pairs: Vec<_> = fields.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
    pairs.join("&")
}

/// Runs curl, silent but for errors, with these arguments.
pub async fn curl(arguments: &[&str]) -> Result<CommandOutput> {
    run_command(&mut curl_command(arguments)).await
}

pub(crate) fn curl_command(arguments: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30"]).args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_encoding_escapes_any_text() {
        assert_eq!(encode_form(&[("a", "1 & 2"), ("overlap_s", "ü=")]), "a=1%20%26%202&overlap%5Fs=%C3%BC%3D");
        assert_eq!(encode_form(&[]), "");
    }
}
