//! The floor above, as a connection calls it: each request with its client, each answer watched to its end.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use domain::Client;
use http::header::{ALT_SVC, CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::identify::Peer;
use crate::vigil::{InFlight, Vigil};
use crate::{Drain, RequestBody};

/// What can be served: it answers the requests of clients.
pub trait Application: Clone + Send + 'static {
    /// The body of its answers.
    type Answer: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + Unpin + 'static;

    /// Answers a client's request.
    fn answer(
        &self,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Answer>> + Send + 'static;
}

impl<S, F, B> Application for S
where
    S: Fn(Client, Request<RequestBody>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + Unpin + 'static,
{
    type Answer = B;

    fn answer(
        &self,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Answer>> + Send + 'static {
        self(client, request)
    }
}

/// An application on one connection.
pub(crate) struct Identified<S> {
    pub(crate) application: S,
    pub(crate) peer: Peer,
    pub(crate) vigil: Arc<Vigil>,
    /// Where the same is spoken over HTTP/3.
    pub(crate) alternative: Option<HeaderValue>,
    pub(crate) drain: Drain,
}

impl<S: Application> hyper::service::Service<Request<Incoming>> for Identified<S> {
    type Response = Response<Answer<S::Answer>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut in_flight = self.vigil.request();
        let client = self.peer.identify(request.version(), request.headers());
        // A client behind a proxy would look for HTTP/3 at the proxy.
        let is_direct = client.address == self.peer.address;
        let alternative = self.alternative.clone().filter(|_| is_direct);
        let drain = Some(self.drain.clone()).filter(|_| request.version() <= Version::HTTP_11);
        let answer = self.application.answer(client, request.map(RequestBody::tcp));
        Box::pin(async move {
            let response = answer.await;
            in_flight.answer();
            let mut response = response.map(|body| Answer { body, in_flight });
            if let Some(alternative) = alternative {
                response.headers_mut().insert(ALT_SVC, alternative);
            }
            if drain.is_some_and(|drain| drain.has_started()) {
                // The one way to end an HTTP/1 connection that no request can cross.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

/// The body of an answer; its request is in flight until it is dropped.
pub(crate) struct Answer<B> {
    body: B,
    in_flight: InFlight,
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        // hyper asks for the next piece when the peer has made room for the one before.
        let frame = Pin::new(&mut self.body).poll_frame(cx);
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
