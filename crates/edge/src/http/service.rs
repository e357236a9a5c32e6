//! The application, as a connection calls it: with each request's client, and a response that is tracked to its end.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALT_SVC, CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};
use ipseity_domain::{Client, FailedAttempt, RequestError};
use tokio::time::sleep;

use crate::http::request_check::check_request;
use crate::http::tracked_body::TrackedBody;
use crate::identify::Peer;
use crate::watchdog::ConnectionWatchdog;
use crate::{Drain, RequestBody};

type BoxError = Box<dyn Error + Send + Sync>;

/// Handles the requests of clients. Closures with the signature of [`Application::handle`] implement it.
pub trait Application: Clone + Send + Unpin + 'static {
    /// The body of responses.
    type ResponseBody: Body<Data = Bytes, Error: Into<BoxError> + Send> + From<Bytes> + Send + Unpin + 'static;

    /// Handles a client's request.
    fn handle(
        &self,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::ResponseBody>> + Send + 'static;

    /// Responds to a request that is refused before it is handled.
    fn refuse(&self, error: RequestError) -> Response<Bytes>;
}

impl<S, F, B> Application for S
where
    S: Fn(Client, Request<RequestBody>) -> F + Clone + Send + Unpin + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError> + Send> + From<Bytes> + Send + Unpin + 'static,
{
    type ResponseBody = B;

    fn handle(
        &self,
        client: Client,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::ResponseBody>> + Send + 'static {
        self(client, request)
    }

    fn refuse(&self, error: RequestError) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from_static(b"request refused\n"));
        *response.status_mut() = match error {
            RequestError::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            RequestError::UriTooLong => StatusCode::URI_TOO_LONG,
            RequestError::Malformed | RequestError::InvalidHost | RequestError::PlainHttp => StatusCode::BAD_REQUEST,
        };
        response
    }
}

/// Checks a request, and passes it to the application or refuses it.
pub(crate) fn check_and_handle<S: Application>(
    application: &S,
    client: Client,
    request: Request<RequestBody>,
    peer: &Peer,
    watchdog: &Arc<ConnectionWatchdog>,
) -> impl Future<Output = Response<S::ResponseBody>> + Send + 'static {
    let limits = &peer.edge.limits;
    // A proxy sends the requests of many clients.
    let watchdog = (client.address == peer.address).then(|| Arc::clone(watchdog));
    let handled = match check_request(&request, limits) {
        Ok(()) => Ok(application.handle(client, request)),
        Err(error) => Err(refuse_request(application, error, request.method())),
    };
    async move {
        let response = match handled {
            Ok(response) => response,
            Err(refusal) => return refusal,
        };
        if let Some(delay) = watchdog.as_ref().and_then(|watchdog| watchdog.attempt_delay()) {
            sleep(delay).await;
        }
        let response = response.await;
        if let Some(watchdog) = watchdog
            && response.extensions().get::<FailedAttempt>().is_some()
        {
            watchdog.record_failed_attempt();
        }
        response
    }
}

/// The application's refusal, with the body that the method allows.
fn refuse_request<S: Application>(application: &S, error: RequestError, method: &Method) -> Response<S::ResponseBody> {
    let mut refusal = application.refuse(error);
    let length = refusal.body().len();
    refusal.headers_mut().insert(CONTENT_LENGTH, length.into());
    refusal.map(|body| if method == Method::HEAD { Bytes::new() } else { body }.into())
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
    type Error = h2::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Some(mut in_flight) = self.watchdog.start_request() else {
            // The client may retry: nothing was processed. On HTTP/1 the connection closes.
            return Box::pin(async { Err(h2::Reason::REFUSED_STREAM.into()) });
        };
        let limits = &self.peer.edge.limits;
        let client = self.peer.identify(request.version(), request.headers());
        // A client behind a proxy would try HTTP/3 with the proxy.
        let is_direct = client.address == self.peer.address;
        let alt_svc = self.alt_svc.clone().filter(|_| is_direct);
        let drain = Some(self.drain.clone()).filter(|_| request.version() <= Version::HTTP_11);
        let (head, body) = request.into_parts();
        // What follows on HTTP/1 is meant for a tunnel.
        let is_connect = head.method == Method::CONNECT && drain.is_some();
        let (body, unread_body) = RequestBody::tcp(body);
        let (watchdog, unread_body_timeout) = (Arc::clone(&self.watchdog), limits.unread_body_timeout);
        let response_future =
            check_and_handle(&self.application, client, Request::from_parts(head, body), &self.peer, &self.watchdog);
        Box::pin(async move {
            let response = response_future.await;
            let mut is_closing = is_connect || drain.as_ref().is_some_and(Drain::has_started);
            if let Some(unread_body) = unread_body
                && !unread_body.read_to_end(unread_body_timeout).await
            {
                watchdog.mark_unread_body();
                // HTTP/1 cannot skip the rest of a body.
                is_closing |= drain.is_some();
            }
            if response.body().size_hint().exact().is_none() {
                watchdog.mark_streaming();
            }
            in_flight.start_response();
            let mut response = response.map(|body| TrackedBody::new(body, in_flight));
            if let Some(alt_svc) = alt_svc {
                response.headers_mut().insert(ALT_SVC, alt_svc);
            }
            if is_closing {
                // The only way to close an HTTP/1 connection without losing a request that is on its way.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}
