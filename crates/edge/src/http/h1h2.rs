//! HTTP/1 and HTTP/2 on one TCP connection, within its limits.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use crate::http::http1_io::Http1Io;
use crate::http::refusal::linger;
use crate::http::service::{Application, ConnectionService};
use crate::watchdog::ConnectionWatchdog;
use crate::{CloseReason, Drain, EdgeLimits, EdgeState};

/// The smallest HTTP/1 buffer that hyper accepts.
const HTTP1_BUFFER_BYTES_MIN: usize = 8192;
/// hyper's default header count. hyper reserves space for these and allocates for any other count on every request.
const HYPER_DEFAULT_HEADERS_MAX: usize = 100;
/// How much larger a header block may be for h2 than for us. h2 answers a larger one with an empty response.
const HTTP2_HEADER_FACTOR: usize = 8;
/// How much an HTTP/2 client may send before it is read. Small, because request bodies are.
const HTTP2_WINDOW_BYTES: u32 = 65_535;

/// How long a draining HTTP/1 connection waits for one more request, whose response carries `Connection: close`.
/// Closing immediately would lose a request that is already on its way.
const HTTP1_DRAIN_GRACE: Duration = Duration::from_secs(1);

/// Serves requests until the connection ends, the drain ends it, or it exceeds a limit.
pub(crate) async fn serve<I, S>(io: I, is_http2: bool, service: ConnectionService<S>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: Application,
{
    let (edge, watchdog) = (Arc::clone(&service.peer.edge), Arc::clone(&service.watchdog));
    let drain = service.drain.clone();
    if is_http2 {
        let Some(streams_max) = watchdog.reserve_streams() else {
            return edge.stats().record_closed(CloseReason::OutOfMemory, 1);
        };
        let connection = pin!(http2_builder(&edge.limits, streams_max).serve_connection(TokioIo::new(io), service));
        drive(connection, &edge, &watchdog, &drain, Duration::ZERO).await;
    } else {
        if !watchdog.start_http1() {
            return edge.stats().record_closed(CloseReason::OutOfMemory, 1);
        }
        let io = TokioIo::new(Http1Io::new(io, service.application.clone(), Arc::clone(&watchdog)));
        let mut connection = http1_builder(&edge.limits).serve_connection(io, service);
        drive(Pin::new(&mut connection), &edge, &watchdog, &drain, HTTP1_DRAIN_GRACE).await;
        let io = connection.into_parts().io.into_inner();
        if io.is_refused() || watchdog.has_unread_body() {
            linger(io.into_inner()).await;
        }
    }
}

fn http1_builder(limits: &EdgeLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The watchdog enforces the header timeout, without a timer for every request.
    builder
        .header_read_timeout(None)
        .half_close(true)
        .max_header_size(limits.header_bytes_max)
        .max_buf_size(limits.header_bytes_max.max(HTTP1_BUFFER_BYTES_MIN));
    if limits.headers_max != HYPER_DEFAULT_HEADERS_MAX {
        builder.max_headers(limits.headers_max);
    }
    builder
}

fn http2_builder(limits: &EdgeLimits, streams_max: u32) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    // No keep-alive pings: a peer that answers them may still be idle, and the timeouts find one that does not.
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams_max)
        .max_header_list_size(u32::try_from(limits.header_bytes_max * HTTP2_HEADER_FACTOR).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(limits.resets_max)
        .max_local_error_reset_streams(limits.resets_max)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES);
    builder
}

/// Whether h2 itself closed the connection, as it does for a protocol violation or a built-in limit.
fn is_local_goaway(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_go_away() && cause.is_library())
}

/// Drives a connection until it ends, the drain ends it, or it exceeds a limit. Counts a close reason once.
async fn drive<C>(
    mut connection: Pin<&mut C>,
    edge: &EdgeState,
    watchdog: &ConnectionWatchdog,
    drain: &Drain,
    drain_grace: Duration,
) where
    C: GracefulConnection<Error = hyper::Error>,
{
    // The first request of a new connection may be on its way, so it is answered before the connection closes.
    let mut drained = pin!(async {
        drain.started().await;
        watchdog.wait_first_request().await;
        sleep(drain_grace).await;
    });
    let mut is_closing = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if ended.is_err_and(|error| is_local_goaway(&error)) {
                    watchdog.record_protocol_error();
                }
                if let Some(reason) = watchdog.flood_reason() {
                    edge.stats().record_closed(reason, 1);
                }
                return;
            }
            () = drained.as_mut(), if !is_closing => {}
            reason = watchdog.expired() => {
                if is_closing {
                    return;
                }
                edge.stats().record_closed(reason, 1);
                if reason != CloseReason::IdleTimeout {
                    return;
                }
            }
        }
        is_closing = true;
        watchdog.mark_closing();
        connection.as_mut().graceful_shutdown();
    }
}
