//! One accepted socket, as the protocols above read and write it.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::proxy_header::{Announcement, Reading, read_proxy_header};
use crate::rtt::Rtt;
use crate::vigil::Vigil;

/// The first bytes of an HTTP/2 client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What is read at a time of a PROXY header; the usual ones fit in.
const PROXY_HEADER_ROOM_BYTES: usize = 256;

/// A socket that notes when its peer takes nothing, and whose round-trip time can be asked for.
pub(crate) struct Socket {
    read: Arc<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// Bytes that were read to tell what comes and still have to be read by it.
    ahead: Vec<u8>,
    vigil: Arc<Vigil>,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, vigil: Arc<Vigil>) -> Self {
        let (read, write) = stream.into_split();
        Self { read: Arc::new(read), write, ahead: Vec::new(), vigil }
    }

    pub(crate) fn rtt(&self) -> Rtt {
        Rtt::new(&self.read)
    }

    /// Whether the peer begins HTTP/2; known as soon as one byte differs.
    pub(crate) async fn begins_http2(&mut self) -> io::Result<bool> {
        let mut room = [0; PREFACE.len()];
        while PREFACE.starts_with(&self.ahead) && self.ahead.len() < PREFACE.len() {
            let start = self.ahead.len();
            if self.read_ahead(&mut room[start..]).await? == 0 {
                return Ok(false);
            }
        }
        Ok(self.ahead.starts_with(PREFACE))
    }

    /// What the PROXY header before everything else says; `None` when there is none.
    pub(crate) async fn announcement(&mut self, bytes_max: usize) -> io::Result<Option<Announcement>> {
        let mut room = [0; PROXY_HEADER_ROOM_BYTES];
        loop {
            match read_proxy_header(&self.ahead, bytes_max) {
                Reading::Whole(announcement, length) => {
                    self.ahead.drain(..length);
                    return Ok(Some(announcement));
                }
                Reading::Refused => return Ok(None),
                Reading::Beginning => {}
            }
            if self.read_ahead(&mut room).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads and keeps, rather than peeks: a peek cannot wait for the byte after the last one seen.
    async fn read_ahead(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            self.read.readable().await?;
            match self.read.try_read(room) {
                Ok(count) => {
                    self.ahead.extend_from_slice(&room[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        self.vigil.wrote(written.is_pending());
        written
    }
}

/// Reads what is there. A read that leaves room has emptied the socket, so that the kernel need not be asked for more before it says that there is.
fn read_once(stream: &TcpStream, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    let (room, mut read) = (buf.remaining(), None);
    let outcome = stream.try_io(Interest::READABLE, || {
        let count = stream.try_read_buf(buf)?;
        read = Some(count);
        let is_emptied = (1..room).contains(&count);
        if is_emptied { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    read.map_or_else(|| outcome.map(|()| 0), Ok)
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead[..count]);
            self.ahead.drain(..count);
            return Poll::Ready(Ok(()));
        }
        loop {
            let stream: &TcpStream = (*self.read).as_ref();
            ready!(stream.poll_read_ready(cx))?;
            match read_once(stream, buf) {
                Ok(count) if self.vigil.read(count) => return Poll::Ready(Ok(())),
                Ok(_) => return Poll::Ready(Err(ErrorKind::QuotaExceeded.into())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.write).poll_write_vectored(cx, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    // A TCP socket has nothing to flush, so a flush says nothing about the peer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }
}
