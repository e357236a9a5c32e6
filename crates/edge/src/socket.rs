//! An accepted TCP socket, as TLS and HTTP read and write it.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::proxy::protocol::{ProxyHeader, ProxyHeaderStatus, parse_proxy_header};
use crate::sys::rtt::Rtt;
use crate::watchdog::ConnectionWatchdog;

/// The connection preface of HTTP/2 (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes per read of a PROXY header. Most headers fit.
const PROXY_HEADER_CHUNK_BYTES: usize = 256;

/// A socket that reports reads and blocked writes to the watchdog and knows its round-trip time.
pub(crate) struct AcceptedSocket {
    read: Arc<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// Bytes that were read to detect the protocol and have not been consumed yet.
    buffered: Vec<u8>,
    watchdog: Arc<ConnectionWatchdog>,
}

impl AcceptedSocket {
    pub(crate) fn new(stream: TcpStream, watchdog: Arc<ConnectionWatchdog>) -> Self {
        let (read, write) = stream.into_split();
        Self { read: Arc::new(read), write, buffered: Vec::new(), watchdog }
    }

    pub(crate) fn rtt(&self) -> Rtt {
        Rtt::tcp(&self.read)
    }

    /// The next byte that the peer sends, which stays unread.
    pub(crate) async fn peek_byte(&self) -> io::Result<u8> {
        if let Some(byte) = self.buffered.first() {
            return Ok(*byte);
        }
        let mut byte = [0];
        let stream: &TcpStream = (*self.read).as_ref();
        stream.peek(&mut byte).await?;
        Ok(byte[0])
    }

    /// Whether the peer sends the HTTP/2 preface. Returns at the first byte that differs.
    pub(crate) async fn has_http2_preface(&mut self) -> io::Result<bool> {
        let mut buffer = [0; HTTP2_PREFACE.len()];
        while HTTP2_PREFACE.starts_with(&self.buffered) && self.buffered.len() < HTTP2_PREFACE.len() {
            let start = self.buffered.len();
            if self.read_ahead(&mut buffer[start..]).await? == 0 {
                return Ok(false);
            }
        }
        Ok(self.buffered.starts_with(HTTP2_PREFACE))
    }

    /// Reads the PROXY header at the start of the connection. `None` if it is missing or invalid.
    pub(crate) async fn read_proxy_header(&mut self, bytes_max: usize) -> io::Result<Option<ProxyHeader>> {
        let mut buffer = [0; PROXY_HEADER_CHUNK_BYTES];
        loop {
            match parse_proxy_header(&self.buffered, bytes_max) {
                ProxyHeaderStatus::Complete(proxy_header, length) => {
                    self.buffered.drain(..length);
                    return Ok(Some(proxy_header));
                }
                ProxyHeaderStatus::Invalid => return Ok(None),
                ProxyHeaderStatus::Partial => {}
            }
            if self.read_ahead(&mut buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads into the buffer. A peek would not do: it cannot wait for the byte after the last one it saw.
    async fn read_ahead(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.read.readable().await?;
            match self.read.try_read(buffer) {
                Ok(count) => {
                    self.buffered.extend_from_slice(&buffer[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn record_write<T>(&self, written: Poll<T>) -> Poll<T> {
        self.watchdog.record_write(written.is_pending());
        written
    }
}

/// Reads once. A partial read has emptied the socket, so its readiness is cleared without another system call.
fn read_once(stream: &TcpStream, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    let (capacity, mut bytes_read) = (buf.remaining(), None);
    let outcome = stream.try_io(Interest::READABLE, || {
        let count = stream.try_read_buf(buf)?;
        bytes_read = Some(count);
        let is_emptied = (1..capacity).contains(&count);
        if is_emptied { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    bytes_read.map_or_else(|| outcome.map(|()| 0), Ok)
}

impl AsyncRead for AcceptedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.buffered.is_empty() {
            let count = self.buffered.len().min(buf.remaining());
            buf.put_slice(&self.buffered[..count]);
            self.buffered.drain(..count);
            return Poll::Ready(Ok(()));
        }
        loop {
            let stream: &TcpStream = (*self.read).as_ref();
            ready!(stream.poll_read_ready(cx))?;
            match read_once(stream, buf) {
                Ok(count) if self.watchdog.record_read(count) => return Poll::Ready(Ok(())),
                Ok(_) => return Poll::Ready(Err(ErrorKind::QuotaExceeded.into())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for AcceptedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write(cx, bytes);
        self.record_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write_vectored(cx, slices);
        self.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    // Not recorded: a TCP flush does nothing, so it says nothing about the peer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
