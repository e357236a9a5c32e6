//! HTTP/3 on one QUIC connection, with a task per request. A response is tracked until the client acknowledges it.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::SendStream as _;
use h3::server::{RequestResolver, RequestStream};
use http::header::{CONTENT_LENGTH, DATE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body;
use quinn::VarInt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::http::service::check_and_handle;
use crate::identify::Peer;
use crate::quic::streams::{AcceptedStream, H3SendStream, H3Transport, HEADER_BYTES_MAX};
use crate::serve::log_panic;
use crate::watchdog::{ConnectionWatchdog, InFlightRequest};
use crate::{Application, CloseReason, Drain, RequestBody};

/// A client needs a round trip to receive GOAWAY. Requests that it sent before are still accepted.
const GOAWAY_GRACE_ROUND_TRIPS: u32 = 2;
const GOAWAY_GRACE_MIN: Duration = Duration::from_millis(500);
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(10);
/// How much of a response is sent before its progress is recorded.
const WRITE_PART_BYTES: usize = 16 << 10;
/// HTTP/3's H3_EXCESSIVE_LOAD, for clients that exceed a limit.
const H3_EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);

/// The application on one HTTP/3 connection.
#[derive(Clone)]
pub(crate) struct Http3Connection<S> {
    pub(crate) application: S,
    pub(crate) peer: Peer,
    pub(crate) watchdog: Arc<ConnectionWatchdog>,
    pub(crate) drain: Drain,
}

/// The progress of a graceful shutdown.
enum ShutdownPhase {
    Running,
    /// GOAWAY was sent. Requests that the client sent before it arrived are accepted until this time.
    GoawaySent(Instant),
    /// No request is accepted. Until this time, the client learns that later requests were not processed.
    Closing(Instant),
}

impl ShutdownPhase {
    /// When the phase ends.
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Running => None,
            Self::GoawaySent(deadline) | Self::Closing(deadline) => Some(*deadline),
        }
    }
}

impl<S: Application> Http3Connection<S> {
    /// Serves requests until the connection ends, the drain ends it, or it exceeds a limit.
    pub(crate) async fn serve(self, connection: quinn::Connection) {
        let edge = Arc::clone(&self.peer.edge);
        let limits = &edge.limits;
        let Some(streams_max) = self.watchdog.reserve_streams() else {
            edge.stats().record_closed(CloseReason::OutOfMemory, 1);
            return connection.close(H3_EXCESSIVE_LOAD, b"");
        };
        connection.set_max_concurrent_bi_streams(streams_max.into());
        let streams = H3Transport::new(connection.clone());
        let last_accepted = streams.last_accepted();
        let mut builder = h3::server::builder();
        builder.max_field_section_size(HEADER_BYTES_MAX as u64).send_grease(false);
        let mut h3_connection = match timeout(limits.header_timeout, builder.build(streams)).await {
            Ok(Ok(h3_connection)) => h3_connection,
            Ok(Err(_disconnected)) => return,
            Err(_elapsed) => return edge.stats().record_closed(CloseReason::HeaderTimeout, 1),
        };
        let mut drained = pin!(async {
            self.drain.started().await;
            self.watchdog.wait_first_request().await;
        });
        let mut requests = JoinSet::new();
        let mut phase = ShutdownPhase::Running;
        loop {
            let is_due = phase.deadline().is_some_and(|deadline| deadline <= Instant::now());
            if matches!(phase, ShutdownPhase::Closing(_)) && is_due && requests.is_empty() {
                return;
            }
            let deadline = phase.deadline().filter(|_| !is_due || matches!(phase, ShutdownPhase::GoawaySent(_)));
            let starts_goaway = tokio::select! {
                accepted = h3_connection.accept() => match (accepted, last_accepted.take()) {
                    (Ok(Some(resolver)), Some(stream)) => {
                        requests.spawn(self.clone().handle_request(resolver, stream));
                        false
                    }
                    (Ok(None), _) if matches!(phase, ShutdownPhase::Closing(_)) => {
                        // h3 returns this for a rejected request, and without waiting if the client is closing too.
                        sleep(ACCEPT_RETRY_DELAY).await;
                        false
                    }
                    (Ok(_) | Err(_), _) => return,
                },
                Some(ended) = requests.join_next() => {
                    log_panic(ended);
                    false
                }
                () = drained.as_mut(), if matches!(phase, ShutdownPhase::Running) => true,
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    if matches!(phase, ShutdownPhase::GoawaySent(_)) {
                        phase = ShutdownPhase::Closing(Instant::now() + goaway_grace(&connection));
                        if h3_connection.shutdown(0).await.is_err() {
                            return;
                        }
                    }
                    false
                }
                reason = self.watchdog.expired() => {
                    if !matches!(phase, ShutdownPhase::Running) {
                        return;
                    }
                    edge.stats().record_closed(reason, 1);
                    if reason != CloseReason::IdleTimeout {
                        return connection.close(H3_EXCESSIVE_LOAD, b"");
                    }
                    true
                }
            };
            if starts_goaway {
                self.watchdog.mark_closing();
                phase = ShutdownPhase::GoawaySent(Instant::now() + goaway_grace(&connection));
                if h3_connection.shutdown(limits.streams_max as usize).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Reads a request and responds to it, unless the client cancels it.
    async fn handle_request(self, mut resolver: RequestResolver<H3Transport, Bytes>, accepted: AcceptedStream) {
        let Some(mut in_flight) = self.watchdog.start_request() else {
            // The client may retry: nothing was processed.
            return resolver.frame_stream.reset(Code::H3_REQUEST_REJECTED.value());
        };
        let header_timeout = self.peer.edge.limits.header_timeout;
        let Ok(Ok((request, h3_stream))) = timeout(header_timeout, resolver.resolve_request()).await else { return };
        accepted.budget.extend_for_body();
        let (mut send, receive) = h3_stream.split();
        let client = self.peer.identify(request.version(), request.headers());
        let (body, unread_body) = RequestBody::quic(receive);
        let limits = &self.peer.edge.limits;
        let response_future =
            check_and_handle(&self.application, client, request.map(|()| body), &self.peer, &self.watchdog);
        let response_future = async {
            let response = response_future.await;
            unread_body.read_to_end(limits.unread_body_timeout).await;
            response
        };
        let response = tokio::select! {
            response = response_future => response,
            () = accepted.canceled => return,
        };
        in_flight.start_response();
        if send_response(response, &mut send, &in_flight).await.is_none() {
            send.stop_stream(Code::H3_INTERNAL_ERROR);
        }
    }
}

fn goaway_grace(connection: &quinn::Connection) -> Duration {
    (connection.rtt() * GOAWAY_GRACE_ROUND_TRIPS).max(GOAWAY_GRACE_MIN)
}

/// Sends a complete response. `None` if that failed.
async fn send_response<B>(
    response: Response<B>,
    send: &mut RequestStream<H3SendStream, Bytes>,
    in_flight: &InFlightRequest,
) -> Option<()>
where
    B: Body<Data = Bytes> + Send,
{
    let (mut head, body) = response.into_parts();
    if !head.headers.contains_key(DATE)
        && let Ok(now) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now()))
    {
        head.headers.insert(DATE, now);
    }
    if head.status == StatusCode::NO_CONTENT {
        head.headers.remove(CONTENT_LENGTH);
    } else if let Some(length) = body.size_hint().exact() {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    // QUIC keeps a copy of all bytes until they are acknowledged.
    let mut write = in_flight.start_write_of(0)?;
    send.send_response(Response::from_parts(head, ())).await.ok()?;
    let mut body = pin!(body);
    while !body.is_end_stream() {
        drop(write);
        let frame = body.frame().await;
        let Some(frame) = frame else {
            write = in_flight.start_write_of(0)?;
            break;
        };
        let mut data = frame.ok()?.into_data().unwrap_or_default();
        write = in_flight.start_write_of(data.len())?;
        while data.has_remaining() {
            let part = data.split_to(data.len().min(WRITE_PART_BYTES));
            let part_bytes = part.len();
            send.send_data(part).await.ok()?;
            write.record_sent(part_bytes);
        }
    }
    let finished = send.finish().await.ok();
    drop(write);
    finished
}
