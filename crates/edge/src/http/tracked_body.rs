//! The body of a response, tracked until the client has received it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};

use crate::watchdog::{InFlightRequest, PendingWrite};

/// The body of a response. Its request is in flight until it is dropped.
pub(crate) struct TrackedBody<B> {
    body: B,
    in_flight: InFlightRequest,
}

impl<B> TrackedBody<B> {
    pub(crate) fn new(body: B, in_flight: InFlightRequest) -> Self {
        Self { body, in_flight }
    }
}

impl<B> Body for TrackedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = TrackedChunk;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<TrackedChunk>, Self::Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(Into::into)?;
        Poll::Ready(Some(match frame.into_data() {
            // Without memory, the stream is reset.
            Ok(bytes) => match self.in_flight.start_write(&bytes) {
                Some(write) => Ok(Frame::data(TrackedChunk { bytes, write })),
                None => Err(h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM).into()),
            },
            Err(frame) => frame.into_trailers().map(Frame::trailers).map_err(|_unknown| "unknown frame".into()),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A part of a body. hyper drops it when its last byte is on its way to the client.
pub(crate) struct TrackedChunk {
    bytes: Bytes,
    write: PendingWrite,
}

impl Buf for TrackedChunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if self.bytes.has_remaining() {
            self.write.record_sent(count);
        }
    }
}
