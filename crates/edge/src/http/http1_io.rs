//! The transport of an HTTP/1 connection, which changes what hyper does in two cases.
//!
//! hyper answers a request that it cannot parse with an empty response; here the application's is sent instead. hyper
//! is set up to answer clients that close their sending side, and so it does not see that the client of a stream has
//! left; here that ends the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use ipseity_domain::RequestError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Application;
use crate::http::refusal::encode_http1;
use crate::watchdog::ConnectionWatchdog;

/// More than a response of hyper without a body has.
const HYPER_REFUSAL_BYTES_MAX: usize = 256;

/// The transport of an HTTP/1 connection.
pub(crate) struct Http1Io<I, S> {
    io: I,
    application: S,
    watchdog: Arc<ConnectionWatchdog>,
    /// A byte that arrived during a stream.
    early_byte: Option<u8>,
    /// The rest of a response that replaces hyper's.
    unsent: Option<Bytes>,
}

impl<I: AsyncWrite + Unpin, S: Application> Http1Io<I, S> {
    pub(crate) fn new(io: I, application: S, watchdog: Arc<ConnectionWatchdog>) -> Self {
        Self { io, application, watchdog, early_byte: None, unsent: None }
    }

    /// Whether hyper refused a request.
    pub(crate) fn is_refused(&self) -> bool {
        self.unsent.is_some()
    }

    pub(crate) fn into_inner(self) -> I {
        self.io
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(unsent) = self.unsent.as_mut().filter(|unsent| !unsent.is_empty()) {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, unsent))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            unsent.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + Unpin, S> Http1Io<I, S> {
    /// Fails if the client has closed the connection.
    fn poll_client_left(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.early_byte.is_some() {
            return Ok(());
        }
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        if Pin::new(&mut self.io).poll_read(cx, &mut buffer)?.is_pending() {
            return Ok(());
        }
        self.early_byte = Some(*buffer.filled().first().ok_or(io::ErrorKind::ConnectionAborted)?);
        Ok(())
    }
}

/// Where in the written bytes hyper refuses a request, and why. It is the last response of a connection.
fn find_hyper_refusal(written: &[u8]) -> Option<(usize, RequestError)> {
    if !written.ends_with(b"\r\n\r\n") {
        return None;
    }
    let search_from = written.len().saturating_sub(HYPER_REFUSAL_BYTES_MAX);
    let start = written[search_from..].windows(10).rposition(|bytes| bytes == b"HTTP/1.1 4")? + search_from;
    let head = &written[start..];
    // Every response of the application with this status has a body.
    head.windows(19).find(|bytes| bytes == b"content-length: 0\r\n")?;
    let error = match head.get(9..12)? {
        b"400" => RequestError::Malformed,
        b"414" => RequestError::UriTooLong,
        b"431" => RequestError::HeadersTooLarge,
        _ => return None,
    };
    Some((start, error))
}

impl<I: AsyncRead + Unpin, S: Unpin> AsyncRead for Http1Io<I, S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(byte) = self.early_byte.take() {
            buf.put_slice(&[byte]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, S: Application> AsyncWrite for Http1Io<I, S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some((start, error)) = find_hyper_refusal(bytes) {
            let refusal = encode_http1(&self.application.refuse(error));
            self.unsent = Some([&bytes[..start], &refusal].concat().into());
            // What cannot be written now is written by the flush.
            return match self.poll_unsent(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(bytes.len())),
            };
        }
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match slices {
            [bytes] => self.poll_write(cx, bytes),
            _ => Pin::new(&mut self.io).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(cx))?;
        // hyper flushes whenever it waits for more of a response.
        if self.watchdog.is_streaming() {
            self.poll_client_left(cx)?;
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_refusals_at_the_end_are_found() {
        let refusal = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(find_hyper_refusal(refusal), Some((0, RequestError::HeadersTooLarge)));
        let after_a_response = [b"HTTP/1.1 204 No Content\r\n\r\n", &refusal[..]].concat();
        assert_eq!(find_hyper_refusal(&after_a_response), Some((27, RequestError::HeadersTooLarge)));
        for other in [
            &refusal[..refusal.len() - 1],
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 90\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert_eq!(find_hyper_refusal(other), None);
        }
    }
}
