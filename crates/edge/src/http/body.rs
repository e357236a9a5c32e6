//! Request bodies of all HTTP versions.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::server::RequestStream;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;

use crate::quic::streams::H3RecvStream;

/// Maximum size of a request body that is read although the application does not need it.
pub(crate) const UNREAD_BODY_BYTES_MAX: usize = 64 << 10;

/// A request's body. When the application drops it before its end, `UnreadBody` gets the rest.
pub struct RequestBody {
    source: Option<BodySource>,
    rest: Option<oneshot::Sender<BodySource>>,
}

enum BodySource {
    Tcp(Incoming),
    // Boxed, because it is rare and much larger than the other variant.
    Quic(Box<RequestStream<H3RecvStream, Bytes>>),
}

/// The part of a body that the application did not read.
///
/// It is read before the response is sent: clients that are still sending may otherwise discard the response.
pub(crate) struct UnreadBody {
    rest: oneshot::Receiver<BodySource>,
}

impl UnreadBody {
    /// Reads the rest and ignores it. Returns whether it ended in time and within its maximum size.
    pub(crate) async fn read_to_end(mut self, timeout: Duration) -> bool {
        // Empty if the application has read the whole body.
        let Ok(mut source) = self.rest.try_recv() else { return true };
        if source.size_hint().lower() > UNREAD_BODY_BYTES_MAX as u64 {
            return false;
        }
        let read = async {
            let mut bytes_left = UNREAD_BODY_BYTES_MAX;
            while let Some(frame) = source.frame().await {
                let Ok(frame) = frame else { return true };
                let length = frame.data_ref().map_or(0, Bytes::len);
                let Some(left) = bytes_left.checked_sub(length) else { return false };
                bytes_left = left;
            }
            true
        };
        tokio::time::timeout(timeout, read).await.unwrap_or(false)
    }
}

impl RequestBody {
    /// A body without a part that could stay unread has no [`UnreadBody`].
    pub(crate) fn tcp(body: Incoming) -> (Self, Option<UnreadBody>) {
        if body.is_end_stream() {
            return (Self { source: None, rest: None }, None);
        }
        let (body, unread) = Self::new(BodySource::Tcp(body));
        (body, Some(unread))
    }

    pub(crate) fn quic(stream: RequestStream<H3RecvStream, Bytes>) -> (Self, UnreadBody) {
        Self::new(BodySource::Quic(Box::new(stream)))
    }

    fn new(source: BodySource) -> (Self, UnreadBody) {
        let (sender, rest) = oneshot::channel();
        (Self { source: Some(source), rest: Some(sender) }, UnreadBody { rest })
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(source), Some(rest)) = (self.source.take(), self.rest.take()) {
            // Fails only if the request was canceled.
            let _ = rest.send(source);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(source).poll_frame(cx));
        if frame.is_none() {
            self.source = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.source.as_ref().is_none_or(BodySource::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.source.as_ref().map_or_else(|| SizeHint::with_exact(0), BodySource::size_hint)
    }
}

impl Body for BodySource {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut *self {
            Self::Tcp(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Quic(stream) => {
                let data = ready!(stream.poll_recv_data(cx)).map_err(Into::into).transpose();
                Poll::Ready(data.map(|data| data.map(|mut data| Frame::data(data.copy_to_bytes(data.remaining())))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Tcp(body) => body.is_end_stream(),
            Self::Quic(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Tcp(body) => body.size_hint(),
            Self::Quic(_) => SizeHint::default(),
        }
    }
}
