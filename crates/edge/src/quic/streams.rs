//! QUIC streams for h3, with limits that h3 does not have.
//!
//! h3 buffers a whole frame, however long, before it processes it. So each stream has a byte budget until its header is
//! read, and all streams of a connection together have a buffer limit. A response counts as sent when the client has
//! acknowledged its last byte, because closing the connection earlier would lose it.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};

/// Maximum size of a request body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes for frame types and lengths, for unknown frames before the header, and for the settings on a control stream.
const FRAMING_BYTES_MAX: usize = 4 << 10;
/// Maximum size of a header block that h3 reads. Larger than our limit, so that the response to one comes from us.
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes received on all open streams of a connection.
const CONNECTION_BUFFER_BYTES_MAX: usize = 128 << 10;
/// Additional bytes that control streams may carry for each request, such as its priority.
const CONTROL_BYTES_PER_REQUEST: usize = 256;
const READ_CHUNK_BYTES: usize = 4 << 10;

type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;
type QuinnBidiStream = (quinn::SendStream, quinn::RecvStream);

/// How many more bytes a stream may receive.
#[derive(Clone)]
pub(crate) struct ByteBudget(Arc<AtomicUsize>);

impl ByteBudget {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Allows the body, after the header was read.
    pub(crate) fn extend_for_body(&self) {
        self.0.fetch_add(BODY_BYTES_MAX, Ordering::Relaxed);
    }
}

/// What a request's task knows about its stream in addition to h3.
pub(crate) struct AcceptedStream {
    /// Completes when the client cancels the request.
    pub(crate) canceled: BoxedFuture<()>,
    pub(crate) budget: ByteBudget,
}

/// The stream that was accepted last.
#[derive(Clone, Default)]
pub(crate) struct LastAcceptedStream(Arc<Mutex<Option<AcceptedStream>>>);

impl LastAcceptedStream {
    pub(crate) fn take(&self) -> Option<AcceptedStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A QUIC connection as h3's transport.
pub(crate) struct H3Transport {
    connection: quinn::Connection,
    accepting_bidi: Option<BoxedFuture<Result<QuinnBidiStream, ConnectionError>>>,
    accepting_uni: Option<BoxedFuture<Result<quinn::RecvStream, ConnectionError>>>,
    opening_uni: Option<BoxedFuture<Result<quinn::SendStream, ConnectionError>>>,
    buffered_bytes: Arc<AtomicUsize>,
    control_budget: ByteBudget,
    last_accepted: LastAcceptedStream,
}

impl H3Transport {
    pub(crate) fn new(connection: quinn::Connection) -> Self {
        Self {
            connection,
            accepting_bidi: None,
            accepting_uni: None,
            opening_uni: None,
            buffered_bytes: Arc::default(),
            control_budget: ByteBudget::new(FRAMING_BYTES_MAX),
            last_accepted: LastAcceptedStream::default(),
        }
    }

    pub(crate) fn last_accepted(&self) -> LastAcceptedStream {
        self.last_accepted.clone()
    }

    fn wrap_recv(&self, stream: quinn::RecvStream, budget: ByteBudget) -> H3RecvStream {
        H3RecvStream {
            stream,
            budget,
            connection_buffered_bytes: Arc::clone(&self.buffered_bytes),
            stream_buffered_bytes: 0,
        }
    }
}

impl quic::Connection<Bytes> for H3Transport {
    type RecvStream = H3RecvStream;
    type OpenStreams = H3StreamOpener;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3RecvStream, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let future = self.accepting_uni.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        });
        let accepted = ready!(future.as_mut().poll(cx));
        self.accepting_uni = None;
        Poll::Ready(
            accepted.map(|stream| self.wrap_recv(stream, self.control_budget.clone())).map_err(to_h3_connection_error),
        )
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3BidiStream, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let future = self.accepting_bidi.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        });
        let accepted = ready!(future.as_mut().poll(cx));
        self.accepting_bidi = None;
        let (send, recv) = accepted.map_err(to_h3_connection_error)?;
        self.control_budget.0.fetch_add(CONTROL_BYTES_PER_REQUEST, Ordering::Relaxed);
        let budget = ByteBudget::new(HEADER_BYTES_MAX + FRAMING_BYTES_MAX);
        let stopped = send.stopped();
        let canceled = Box::pin(async move { drop(stopped.await) });
        let accepted = AcceptedStream { canceled, budget: budget.clone() };
        *self.last_accepted.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(accepted);
        Poll::Ready(Ok(H3BidiStream { send: H3SendStream::new(send), recv: self.wrap_recv(recv, budget) }))
    }

    fn opener(&self) -> H3StreamOpener {
        H3StreamOpener(self.connection.clone())
    }
}

impl quic::OpenStreams<Bytes> for H3Transport {
    type BidiStream = H3BidiStream;
    type SendStream = H3SendStream;

    fn poll_open_bidi(&mut self, _cx: &mut Context<'_>) -> Poll<Result<H3BidiStream, StreamErrorIncoming>> {
        Poll::Ready(Err(server_stream_not_allowed()))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3SendStream, StreamErrorIncoming>> {
        let connection = &self.connection;
        let future = self.opening_uni.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.open_uni().await })
        });
        let opened = ready!(future.as_mut().poll(cx));
        self.opening_uni = None;
        Poll::Ready(
            opened.map(H3SendStream::new).map_err(|error| stream_error_from_connection(to_h3_connection_error(error))),
        )
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(var_int(code.value()), reason);
    }
}

/// Opens no stream. h3 requires it of a server but never uses it.
pub(crate) struct H3StreamOpener(quinn::Connection);

impl quic::OpenStreams<Bytes> for H3StreamOpener {
    type BidiStream = H3BidiStream;
    type SendStream = H3SendStream;

    fn poll_open_bidi(&mut self, _cx: &mut Context<'_>) -> Poll<Result<H3BidiStream, StreamErrorIncoming>> {
        Poll::Ready(Err(server_stream_not_allowed()))
    }

    fn poll_open_send(&mut self, _cx: &mut Context<'_>) -> Poll<Result<H3SendStream, StreamErrorIncoming>> {
        Poll::Ready(Err(server_stream_not_allowed()))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.0.close(var_int(code.value()), reason);
    }
}

/// The stream of a request.
pub(crate) struct H3BidiStream {
    send: H3SendStream,
    recv: H3RecvStream,
}

impl quic::BidiStream<Bytes> for H3BidiStream {
    type SendStream = H3SendStream;
    type RecvStream = H3RecvStream;

    fn split(self) -> (H3SendStream, H3RecvStream) {
        (self.send, self.recv)
    }
}

impl quic::RecvStream for H3BidiStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.recv.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl quic::SendStream<Bytes> for H3BidiStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

/// The receiving side of a stream.
pub(crate) struct H3RecvStream {
    stream: quinn::RecvStream,
    budget: ByteBudget,
    /// Bytes received on all open streams of the connection, and this stream's share of them.
    connection_buffered_bytes: Arc<AtomicUsize>,
    stream_buffered_bytes: usize,
}

impl quic::RecvStream for H3RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let mut chunk = [0; READ_CHUNK_BYTES];
        let count = ready!(self.stream.poll_read(cx, &mut chunk)).map_err(to_h3_read_error)?;
        if count == 0 {
            return Poll::Ready(Ok(None));
        }
        self.stream_buffered_bytes += count;
        let buffered = self.connection_buffered_bytes.fetch_add(count, Ordering::Relaxed) + count;
        let reserved = self.budget.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count));
        if reserved.is_err() || buffered > CONNECTION_BUFFER_BYTES_MAX {
            let code = Code::H3_EXCESSIVE_LOAD.value();
            self.stop_sending(code);
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code: code }));
        }
        Poll::Ready(Ok(Some(Bytes::copy_from_slice(&chunk[..count]))))
    }

    fn stop_sending(&mut self, error_code: u64) {
        // Fails only if the stream has already ended.
        let _ = self.stream.stop(var_int(error_code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for H3RecvStream {
    fn drop(&mut self) {
        // A response may end before its request. quinn would then use code 0, which HTTP/3 does not define.
        let _ = self.stream.stop(var_int(Code::H3_NO_ERROR.value()));
        self.connection_buffered_bytes.fetch_sub(self.stream_buffered_bytes, Ordering::Relaxed);
    }
}

/// The sending side of a stream.
pub(crate) struct H3SendStream {
    stream: quinn::SendStream,
    pending_write: Option<WriteBuf<Bytes>>,
    acknowledged: Option<BoxedFuture<()>>,
}

impl H3SendStream {
    fn new(stream: quinn::SendStream) -> Self {
        Self { stream, pending_write: None, acknowledged: None }
    }
}

impl quic::SendStream<Bytes> for H3SendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(data) = &mut self.pending_write {
            while data.has_remaining() {
                let written =
                    ready!(Pin::new(&mut self.stream).poll_write(cx, data.chunk())).map_err(to_h3_write_error)?;
                data.advance(written);
            }
        }
        self.pending_write = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.pending_write = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        let stream = &mut self.stream;
        let acknowledged = self.acknowledged.get_or_insert_with(|| {
            // Fails only if the client has stopped the stream, which `stopped` reports.
            let _ = stream.finish();
            let stopped = stream.stopped();
            Box::pin(async move { drop(stopped.await) })
        });
        acknowledged.as_mut().poll(cx).map(Ok)
    }

    fn reset(&mut self, reset_code: u64) {
        let _ = self.stream.reset(var_int(reset_code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for H3SendStream {
    fn drop(&mut self) {
        // quinn would finish the stream, and a truncated response would look complete.
        if self.acknowledged.is_none() && thread::panicking() {
            let _ = self.stream.reset(var_int(Code::H3_INTERNAL_ERROR.value()));
        }
    }
}

fn var_int(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

fn stream_id(id: quinn::StreamId) -> StreamId {
    let id = u64::from(VarInt::from(id));
    StreamId::try_from(id).expect("h3 and quinn number streams alike")
}

fn to_h3_connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        ConnectionError::VersionMismatch
        | ConnectionError::TransportError(_)
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn stream_error_from_connection(connection_error: ConnectionErrorIncoming) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
}

fn server_stream_not_allowed() -> StreamErrorIncoming {
    stream_error_from_connection(ConnectionErrorIncoming::InternalError("server opens no such stream".to_owned()))
}

fn to_h3_read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        ReadError::ConnectionLost(error) => stream_error_from_connection(to_h3_connection_error(error)),
        ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
            StreamErrorIncoming::Unknown(Box::new(error))
        }
    }
}

fn to_h3_write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        WriteError::ConnectionLost(error) => stream_error_from_connection(to_h3_connection_error(error)),
        WriteError::ClosedStream | WriteError::ZeroRttRejected => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}
