//! The floor above, as a connection calls it: each request with its client, each answer watched to its end.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tower::{Service, ServiceExt};

use crate::identify::Peer;
use crate::vigil::{InFlight, Vigil};

/// What can be served: a cloneable `tower::Service` from requests to responses.
pub trait Application:
    Service<
        Request<Incoming>,
        Response = Response<Self::Answer>,
        Error: Into<Box<dyn Error + Send + Sync>>,
        Future: Send + 'static,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type Answer: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;
}

impl<S, B> Application for S
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    type Answer = B;
}

/// An application on one connection.
pub(crate) struct Identified<S> {
    pub(crate) application: S,
    pub(crate) peer: Peer,
    pub(crate) vigil: Arc<Vigil>,
}

impl<S: Application> hyper::service::Service<Request<Incoming>> for Identified<S> {
    type Response = Response<Answer<S::Answer>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let mut in_flight = self.vigil.request();
        let client = self.peer.identify(request.version(), request.headers());
        request.extensions_mut().insert(client);
        let answer = self.application.clone().oneshot(request);
        Box::pin(async move {
            let response = answer.await;
            in_flight.answer();
            Ok(response?.map(|body| Answer { body: Box::pin(body), in_flight }))
        })
    }
}

/// The body of an answer; its request is in flight until it is dropped.
pub(crate) struct Answer<B> {
    body: Pin<Box<B>>,
    in_flight: InFlight,
}

impl<B: Body> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        // hyper asks for the next piece when the peer has made room for the one before.
        let frame = self.body.as_mut().poll_frame(cx);
        let waits = matches!(frame, Poll::Ready(Some(Ok(_))));
        self.in_flight.offer(waits);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
