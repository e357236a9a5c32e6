//! Clients for tests: one keep-alive HTTP/1.1 connection, and curl for TLS and HTTP/2.
//!
//! They follow no redirects and keep no cookies.

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

/// A response.
#[derive(Debug, Clone)]
pub struct TestResponse {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Complete body.
    pub body: Bytes,
}

impl TestResponse {
    /// First value of a header, if it is present and text.
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

/// A client with one connection, opened on first use. It never retries a request.
#[derive(Debug)]
pub struct TestClient {
    server: SocketAddr,
    /// The host of requests, if it is not the address of the server.
    host: Option<String>,
    source_ip: Option<IpAddr>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl TestClient {
    /// A client of a plain HTTP listener.
    #[must_use]
    pub const fn new(server: SocketAddr) -> Self {
        Self { server, host: None, source_ip: None, connection: None }
    }

    /// A client of a plain HTTP listener with this source address.
    #[must_use]
    pub const fn from_source(server: SocketAddr, source: IpAddr) -> Self {
        Self { server, host: None, source_ip: Some(source), connection: None }
    }

    /// The same client, which requests this host.
    #[must_use]
    pub fn with_host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// Sends a GET request.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<TestResponse> {
        self.send(Method::GET, path, headers).await
    }

    /// Sends a request without a body.
    pub async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)]) -> Result<TestResponse> {
        self.send_request(method, path, headers, Bytes::new()).await
    }

    /// Sends a form.
    pub async fn post_form(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        fields: &[(&str, &str)],
    ) -> Result<TestResponse> {
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        self.post(path, &[&kind, headers].concat(), encode_form(fields)).await
    }

    /// Sends a POST request.
    pub async fn post(&mut self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Result<TestResponse> {
        self.send_request(Method::POST, path, headers, body.into()).await
    }

    /// Sends a request with a JSON body.
    pub async fn send_json(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<TestResponse> {
        let kind = [("content-type", "application/json")];
        self.send_request(method, path, &[&kind, headers].concat(), body.to_string().into()).await
    }

    /// Sends a GET request and returns the response before its body, as a stream.
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
        let host = self.host.clone().unwrap_or_else(|| self.server.to_string());
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Ok(request.body(Full::new(body))?)
    }

    /// Reuses the connection if the server kept it open, or opens a new one.
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
        // The request returns the driver's error.
        tokio::spawn(driver);
        Ok(connection)
    }
}

/// A response whose body is read as it arrives.
#[derive(Debug)]
pub struct StreamingResponse {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    body: Incoming,
    /// Dropping the connection would end the response.
    _connection: SendRequest<Full<Bytes>>,
}

impl StreamingResponse {
    /// Next chunk of the body; `None` at its end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(chunk) = frame?.into_data() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }
}

/// Encodes fields as `application/x-www-form-urlencoded`. Escapes every byte except letters and digits.
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

/// Runs curl with these arguments; it prints only errors.
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
