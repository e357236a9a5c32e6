//! HTTP/3 on one QUIC connection: each request in a task of its own, each answer watched until the client has it.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::server::{RequestResolver, RequestStream};
use http::header::{CONTENT_LENGTH, DATE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body;
use quinn::VarInt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::identify::Peer;
use crate::quic_stream::{Accepted, SendStream, Streams};
use crate::serve::note_panic;
use crate::vigil::{InFlight, Vigil};
use crate::{Application, Bound, Drain, RequestBody};

/// A client needs a round trip to hear that it should go; requests that it sent before are still taken.
const ROUND_TRIPS_TO_HEAR: u32 = 2;
const TO_HEAR_MIN: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(10);
/// HTTP/3's H3_EXCESSIVE_LOAD, for whoever has broken a bound.
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);

/// An application on one connection.
#[derive(Clone)]
pub(crate) struct Conversation<S> {
    pub(crate) application: S,
    pub(crate) peer: Peer,
    pub(crate) vigil: Arc<Vigil>,
    pub(crate) drain: Drain,
}

/// How far the end of a connection is.
enum Leave {
    Staying,
    /// Told to ask no more; what it asked before it heard is taken until then.
    Told(Instant),
    /// Nothing more is taken. Until then, who asks all the same is told that the request was not touched.
    Closing(Instant),
}

impl Leave {
    /// When the next step is due.
    fn due(&self) -> Option<Instant> {
        match self {
            Self::Staying => None,
            Self::Told(due) | Self::Closing(due) => Some(*due),
        }
    }
}

impl<S: Application> Conversation<S> {
    /// Serves the connection until it ends, the drain ends it, or a bound does.
    pub(crate) async fn hold(self, connection: quinn::Connection) {
        let edge = Arc::clone(&self.peer.edge);
        let bounds = &edge.bounds;
        let streams = Streams::new(connection.clone(), bounds.header_bytes_max);
        let latest = streams.latest();
        let mut builder = h3::server::builder();
        builder.max_field_section_size(bounds.header_bytes_max as u64).send_grease(false);
        let mut http = match timeout(bounds.header_timeout, builder.build(streams)).await {
            Ok(Ok(http)) => http,
            Ok(Err(_gone)) => return,
            Err(_late) => return edge.stats().close(Bound::Header, 1),
        };
        let mut drained = pin!(async {
            self.drain.started().await;
            self.vigil.asked().await;
        });
        let mut requests = JoinSet::new();
        let mut leave = Leave::Staying;
        loop {
            let is_past = leave.due().is_some_and(|due| due <= Instant::now());
            if matches!(leave, Leave::Closing(_)) && is_past && requests.is_empty() {
                return;
            }
            let due = leave.due().filter(|_| !is_past || matches!(leave, Leave::Told(_)));
            let told = tokio::select! {
                accepted = http.accept() => match (accepted, latest.take()) {
                    (Ok(Some(resolver)), Some(stream)) => {
                        requests.spawn(self.clone().answer(resolver, stream));
                        false
                    }
                    (Ok(None), _) if matches!(leave, Leave::Closing(_)) => {
                        // h3 says so for a request that it gave back, and at once again for a client that is leaving itself.
                        sleep(PAUSE).await;
                        false
                    }
                    (Ok(_) | Err(_), _) => return,
                },
                Some(ended) = requests.join_next() => {
                    note_panic(ended);
                    false
                }
                () = drained.as_mut(), if matches!(leave, Leave::Staying) => true,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    if matches!(leave, Leave::Told(_)) {
                        leave = Leave::Closing(Instant::now() + to_hear(&connection));
                        if http.shutdown(0).await.is_err() {
                            return;
                        }
                    }
                    false
                }
                bound = self.vigil.broken() => {
                    if !matches!(leave, Leave::Staying) {
                        return;
                    }
                    edge.stats().close(bound, 1);
                    if bound != Bound::Idle {
                        return connection.close(EXCESSIVE_LOAD, b"");
                    }
                    true
                }
            };
            if told {
                self.vigil.leave();
                leave = Leave::Told(Instant::now() + to_hear(&connection));
                if http.shutdown(bounds.streams_max as usize).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Reads a request, and answers it unless the client no longer wants that.
    async fn answer(self, resolver: RequestResolver<Streams, Bytes>, stream: Accepted) {
        let mut in_flight = self.vigil.request();
        let header_timeout = self.peer.edge.bounds.header_timeout;
        let Ok(Ok((request, http))) = timeout(header_timeout, resolver.resolve_request()).await else { return };
        stream.allowance.allow_body();
        let (mut send, receive) = http.split();
        let client = self.peer.identify(request.version(), request.headers());
        let answer = self.application.answer(client, request.map(|()| RequestBody::quic(receive)));
        let response = tokio::select! {
            response = answer => response,
            () = stream.unwanted => return,
        };
        in_flight.answer();
        if deliver(response, &mut send, &mut in_flight).await.is_none() {
            send.stop_stream(Code::H3_INTERNAL_ERROR);
        }
    }
}

fn to_hear(connection: &quinn::Connection) -> Duration {
    (connection.rtt() * ROUND_TRIPS_TO_HEAR).max(TO_HEAR_MIN)
}

/// Sends an answer to its end; `None` if that was not reached.
async fn deliver<B>(
    response: Response<B>,
    send: &mut RequestStream<SendStream, Bytes>,
    in_flight: &mut InFlight,
) -> Option<()>
where
    B: Body<Data: Send> + Send,
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
    send.send_response(Response::from_parts(head, ())).await.ok()?;
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        if let Ok(mut data) = frame.ok()?.into_data() {
            in_flight.offer(true);
            send.send_data(data.copy_to_bytes(data.remaining())).await.ok()?;
        }
        in_flight.offer(false);
    }
    in_flight.offer(true);
    send.finish().await.ok()
}
