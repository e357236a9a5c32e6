//! Request bodies of all HTTP versions.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::server::RequestStream;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::quic::streams::H3RecvStream;

/// A request's body.
pub struct RequestBody(BodySource);

enum BodySource {
    Tcp(Incoming),
    // Boxed, because it is rare and much larger than the other variant.
    Quic(Box<RequestStream<H3RecvStream, Bytes>>),
}

impl RequestBody {
    pub(crate) fn tcp(body: Incoming) -> Self {
        Self(BodySource::Tcp(body))
    }

    pub(crate) fn quic(stream: RequestStream<H3RecvStream, Bytes>) -> Self {
        Self(BodySource::Quic(Box::new(stream)))
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
            BodySource::Tcp(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            BodySource::Quic(stream) => {
                let data = ready!(stream.poll_recv_data(cx)).map_err(Into::into).transpose();
                Poll::Ready(data.map(|data| data.map(|mut data| Frame::data(data.copy_to_bytes(data.remaining())))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Tcp(body) => body.is_end_stream(),
            BodySource::Quic(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Tcp(body) => body.size_hint(),
            BodySource::Quic(_) => SizeHint::default(),
        }
    }
}
