//! The application, as a connection calls it: with each request's client, and a response that is tracked to its end.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{ALT_SVC, CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use ipseity_domain::Client;

use crate::identify::Peer;
use crate::watchdog::{ConnectionWatchdog, InFlightRequest};
use crate::{Drain, RequestBody};

/// Handles the requests of clients. Closures of the same signature implement it.
pub trait Application: Clone + Send + 'static {
    /// The body of responses.
    type ResponseBody: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + Unpin + 'static;

    /// Handles a client's request.
    fn handle(
        &self,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::ResponseBody>> + Send + 'static;
}

impl<S, F, B> Application for S
where
    S: Fn(Client, Request<RequestBody>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + Unpin + 'static,
{
    type ResponseBody = B;

    fn handle(
        &self,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::ResponseBody>> + Send + 'static {
        self(client, request)
    }
}

/// The application on one HTTP/1 or HTTP/2 connection.
pub(crate) struct ConnectionService<S> {
    pub(crate) application: S,
    pub(crate) peer: Peer,
    pub(crate) watchdog: Arc<ConnectionWatchdog>,
    /// The `Alt-Svc` header that announces HTTP/3.
    pub(crate) alt_svc: Option<HeaderValue>,
    pub(crate) drain: Drain,
}

impl<S: Application> hyper::service::Service<Request<Incoming>> for ConnectionService<S> {
    type Response = Response<TrackedBody<S::ResponseBody>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut in_flight = self.watchdog.start_request();
        let client = self.peer.identify(request.version(), request.headers());
        // A client behind a proxy would try HTTP/3 with the proxy.
        let is_direct = client.address == self.peer.address;
        let alt_svc = self.alt_svc.clone().filter(|_| is_direct);
        let drain = Some(self.drain.clone()).filter(|_| request.version() <= Version::HTTP_11);
        let response_future = self.application.handle(client, request.map(RequestBody::tcp));
        Box::pin(async move {
            let response = response_future.await;
            in_flight.start_response();
            let mut response = response.map(|body| TrackedBody { body, in_flight });
            if let Some(alt_svc) = alt_svc {
                response.headers_mut().insert(ALT_SVC, alt_svc);
            }
            if drain.is_some_and(|drain| drain.has_started()) {
                // The only way to close an HTTP/1 connection without losing a request that is on its way.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

/// The body of a response. Its request is in flight until it is dropped.
pub(crate) struct TrackedBody<B> {
    body: B,
    in_flight: InFlightRequest,
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        // hyper polls for the next frame once the peer's flow control allows the previous one.
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let is_pending = matches!(frame, Poll::Ready(Some(Ok(_))));
        self.in_flight.set_write_pending(is_pending);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
