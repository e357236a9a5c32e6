//! QUIC streams as h3 reads and writes them, with the bounds that h3 lacks.
//!
//! h3 gathers a whole frame before it looks at it, however long the frame says it is. So every stream may bring only so many bytes
//! until its header is read, and all streams of a connection together only so many at once. An answer counts as sent when its
//! last byte was acknowledged: a connection that is closed before that takes the answer with it.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};

/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a frame's type and length, of unknown frames before the header, and of a control stream's settings.
const FRAMING_BYTES_MAX: usize = 4 << 10;
/// Bytes of all streams of a connection that are not done with.
const CONNECTION_BYTES_MAX: usize = 1 << 20;
/// Bytes that a control stream may bring with every request, such as its priority.
const CONTROL_BYTES_PER_REQUEST: usize = 256;
const CHUNK_BYTES: usize = 4 << 10;

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;
type Pair = (quinn::SendStream, quinn::RecvStream);

/// How many bytes a stream may still bring.
#[derive(Clone)]
pub(crate) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// The header is read; now the body may come.
    pub(crate) fn allow_body(&self) {
        self.0.fetch_add(BODY_BYTES_MAX, Ordering::Relaxed);
    }
}

/// What the task of a request knows of its stream beside what h3 shows.
pub(crate) struct Accepted {
    /// Ends when the client no longer wants the answer.
    pub(crate) unwanted: Waiting<()>,
    pub(crate) allowance: Allowance,
}

/// The stream that was accepted last.
#[derive(Clone, Default)]
pub(crate) struct Latest(Arc<Mutex<Option<Accepted>>>);

impl Latest {
    pub(crate) fn take(&self) -> Option<Accepted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection as h3 drives it.
pub(crate) struct Streams {
    connection: quinn::Connection,
    accepting: Option<Waiting<Result<Pair, ConnectionError>>>,
    accepting_recv: Option<Waiting<Result<quinn::RecvStream, ConnectionError>>>,
    opening: Option<Waiting<Result<quinn::SendStream, ConnectionError>>>,
    header_bytes_max: usize,
    held: Arc<AtomicUsize>,
    control: Allowance,
    latest: Latest,
}

impl Streams {
    pub(crate) fn new(connection: quinn::Connection, header_bytes_max: usize) -> Self {
        Self {
            connection,
            accepting: None,
            accepting_recv: None,
            opening: None,
            header_bytes_max,
            held: Arc::default(),
            control: Allowance::new(FRAMING_BYTES_MAX),
            latest: Latest::default(),
        }
    }

    pub(crate) fn latest(&self) -> Latest {
        self.latest.clone()
    }

    fn recv(&self, stream: quinn::RecvStream, allowance: Allowance) -> RecvStream {
        RecvStream { stream, allowance, held: Arc::clone(&self.held), taken: 0 }
    }
}

impl quic::Connection<Bytes> for Streams {
    type RecvStream = RecvStream;
    type OpenStreams = Opener;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let waiting = self.accepting_recv.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        });
        let accepted = ready!(waiting.as_mut().poll(cx));
        self.accepting_recv = None;
        Poll::Ready(accepted.map(|stream| self.recv(stream, self.control.clone())).map_err(lost))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<BidiStream, ConnectionErrorIncoming>> {
        let connection = &self.connection;
        let waiting = self.accepting.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        });
        let accepted = ready!(waiting.as_mut().poll(cx));
        self.accepting = None;
        let (send, recv) = accepted.map_err(lost)?;
        self.control.0.fetch_add(CONTROL_BYTES_PER_REQUEST, Ordering::Relaxed);
        let allowance = Allowance::new(self.header_bytes_max + FRAMING_BYTES_MAX);
        let stopped = send.stopped();
        let unwanted = Box::pin(async move { drop(stopped.await) });
        let accepted = Accepted { unwanted, allowance: allowance.clone() };
        *self.latest.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(accepted);
        Poll::Ready(Ok(BidiStream { send: SendStream::new(send), recv: self.recv(recv, allowance) }))
    }

    fn opener(&self) -> Opener {
        Opener(self.connection.clone())
    }
}

impl quic::OpenStreams<Bytes> for Streams {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    fn poll_open_bidi(&mut self, _cx: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        Poll::Ready(Err(servers_open_none()))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        let connection = &self.connection;
        let waiting = self.opening.get_or_insert_with(|| {
            let connection = connection.clone();
            Box::pin(async move { connection.open_uni().await })
        });
        let opened = ready!(waiting.as_mut().poll(cx));
        self.opening = None;
        Poll::Ready(opened.map(SendStream::new).map_err(|error| with_connection(lost(error))))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(var_int(code.value()), reason);
    }
}

/// Opens nothing: h3 asks a server for one and never uses it.
pub(crate) struct Opener(quinn::Connection);

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    fn poll_open_bidi(&mut self, _cx: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        Poll::Ready(Err(servers_open_none()))
    }

    fn poll_open_send(&mut self, _cx: &mut Context<'_>) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        Poll::Ready(Err(servers_open_none()))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.0.close(var_int(code.value()), reason);
    }
}

/// A request's stream.
pub(crate) struct BidiStream {
    send: SendStream,
    recv: RecvStream,
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = SendStream;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }
}

impl quic::RecvStream for BidiStream {
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

impl quic::SendStream<Bytes> for BidiStream {
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

/// What a client sends.
pub(crate) struct RecvStream {
    stream: quinn::RecvStream,
    allowance: Allowance,
    /// Bytes that all streams of the connection hold, and this one's among them.
    held: Arc<AtomicUsize>,
    taken: usize,
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let mut chunk = [0; CHUNK_BYTES];
        let count = ready!(self.stream.poll_read(cx, &mut chunk)).map_err(unread)?;
        if count == 0 {
            return Poll::Ready(Ok(None));
        }
        self.taken += count;
        let held = self.held.fetch_add(count, Ordering::Relaxed) + count;
        let within =
            self.allowance.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count));
        if within.is_err() || held > CONNECTION_BYTES_MAX {
            let code = Code::H3_EXCESSIVE_LOAD.value();
            self.stop_sending(code);
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code: code }));
        }
        Poll::Ready(Ok(Some(Bytes::copy_from_slice(&chunk[..count]))))
    }

    fn stop_sending(&mut self, error_code: u64) {
        // Fails only where there is nothing left to stop.
        let _ = self.stream.stop(var_int(error_code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        // An answer may overtake the end of its request. quinn would stop that with 0, which in HTTP/3 is no code at all.
        let _ = self.stream.stop(var_int(Code::H3_NO_ERROR.value()));
        self.held.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// What a client is sent.
pub(crate) struct SendStream {
    stream: quinn::SendStream,
    writing: Option<WriteBuf<Bytes>>,
    delivered: Option<Waiting<()>>,
}

impl SendStream {
    fn new(stream: quinn::SendStream) -> Self {
        Self { stream, writing: None, delivered: None }
    }
}

impl quic::SendStream<Bytes> for SendStream {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(data) = &mut self.writing {
            while data.has_remaining() {
                let written = ready!(Pin::new(&mut self.stream).poll_write(cx, data.chunk())).map_err(unwritten)?;
                data.advance(written);
            }
        }
        self.writing = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        let stream = &mut self.stream;
        let delivered = self.delivered.get_or_insert_with(|| {
            // Fails only where the client has stopped the stream, which `stopped` tells.
            let _ = stream.finish();
            let stopped = stream.stopped();
            Box::pin(async move { drop(stopped.await) })
        });
        delivered.as_mut().poll(cx).map(Ok)
    }

    fn reset(&mut self, reset_code: u64) {
        let _ = self.stream.reset(var_int(reset_code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for SendStream {
    fn drop(&mut self) {
        // quinn would end the stream in good order, and half an answer would look whole.
        if self.delivered.is_none() && thread::panicking() {
            let _ = self.stream.reset(var_int(Code::H3_INTERNAL_ERROR.value()));
        }
    }
}

fn var_int(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

fn stream_id(id: quinn::StreamId) -> StreamId {
    let id = u64::from(VarInt::from(id));
    StreamId::try_from(id).expect("both libraries number streams alike")
}

fn lost(error: ConnectionError) -> ConnectionErrorIncoming {
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

fn with_connection(connection_error: ConnectionErrorIncoming) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error }
}

fn servers_open_none() -> StreamErrorIncoming {
    with_connection(ConnectionErrorIncoming::InternalError("a server opens no such stream".to_owned()))
}

fn unread(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        ReadError::ConnectionLost(error) => with_connection(lost(error)),
        ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
            StreamErrorIncoming::Unknown(Box::new(error))
        }
    }
}

fn unwritten(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        WriteError::ConnectionLost(error) => with_connection(lost(error)),
        WriteError::ClosedStream | WriteError::ZeroRttRejected => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}
