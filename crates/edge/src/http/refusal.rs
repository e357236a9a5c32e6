//! The responses to requests that the application does not handle, as bytes of HTTP/1.

use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long the rest of a refused request is read and ignored. Closing while the client sends would make the kernel
/// reset the connection, and the client may then never see the response.
const LINGER: Duration = Duration::from_secs(1);

/// Encodes a response after which the connection closes.
pub(crate) fn encode_http1(response: &Response<Bytes>) -> Bytes {
    let (status, body) = (response.status(), response.body());
    let mut head = format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default());
    for (name, value) in response.headers() {
        if let Ok(value) = value.to_str() {
            let _ = write!(head, "{name}: {value}\r\n");
        }
    }
    let date = httpdate::fmt_http_date(SystemTime::now());
    let _ = write!(head, "connection: close\r\ncontent-length: {}\r\ndate: {date}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat().into()
}

/// Closes a connection after a response, and ignores what the client still sends.
pub(crate) async fn linger(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let ignore_rest = async {
        io.shutdown().await?;
        while io.read(&mut [0; 4096]).await? > 0 {}
        io::Result::Ok(())
    };
    // The client has its response, or cannot be reached.
    let _ = timeout(LINGER, ignore_rest).await;
}
