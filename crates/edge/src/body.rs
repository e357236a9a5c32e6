//! The body of a request, whichever protocol brings it.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::server::RequestStream;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::quic_stream::RecvStream;

/// A request's body.
pub struct RequestBody(Source);

enum Source {
    Tcp(Incoming),
    // Boxed: it is rare, and large beside the other.
    Quic(Box<RequestStream<RecvStream, Bytes>>),
}

impl RequestBody {
    pub(crate) fn tcp(body: Incoming) -> Self {
        Self(Source::Tcp(body))
    }

    pub(crate) fn quic(stream: RequestStream<RecvStream, Bytes>) -> Self {
        Self(Source::Quic(Box::new(stream)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut self.0 {
            Source::Tcp(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Source::Quic(stream) => {
                let data = ready!(stream.poll_recv_data(cx)).map_err(Into::into).transpose();
                Poll::Ready(data.map(|data| data.map(|mut data| Frame::data(data.copy_to_bytes(data.remaining())))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Tcp(body) => body.is_end_stream(),
            Source::Quic(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Tcp(body) => body.size_hint(),
            Source::Quic(_) => SizeHint::default(),
        }
    }
}
