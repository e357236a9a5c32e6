//! A provider on loopback that sends prepared responses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use http::header::LOCATION;
use http::{HeaderMap, Method, StatusCode};
use tokio::net::TcpListener;

/// The server. It ends with the runtime of the test.
pub(super) struct StubServer {
    pub(super) url: String,
    state: Arc<Mutex<StubState>>,
}

#[derive(Default)]
struct StubState {
    responses: HashMap<String, (StatusCode, String)>,
    requests: Vec<ReceivedRequest>,
}

#[derive(Clone)]
pub(super) struct ReceivedRequest {
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) form: HashMap<String, String>,
}

impl StubServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("port is free");
        let url = format!("http://{}", listener.local_addr().expect("socket is bound"));
        let state = Arc::new(Mutex::new(StubState::default()));
        let router = Router::new().fallback({
            let (state, elsewhere) = (Arc::clone(&state), format!("{url}/elsewhere"));
            move |request: Request| async move {
                let (head, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.expect("body is complete");
                let received = ReceivedRequest {
                    method: head.method,
                    target: head.uri.to_string(),
                    headers: head.headers,
                    form: form_urlencoded::parse(&body).into_owned().collect(),
                };
                let mut state = lock(&state);
                let response = state.responses.get(&received.target).cloned();
                state.requests.push(received);
                let (status, body) = response.unwrap_or((StatusCode::NOT_FOUND, String::new()));
                (status, [(LOCATION, elsewhere)], body)
            }
        });
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { url, state }
    }

    /// Sets the response for a path.
    pub(super) fn respond(&self, path: &str, status: u16, body: impl ToString) {
        let status = StatusCode::from_u16(status).expect("status is valid");
        lock(&self.state).responses.insert(path.to_owned(), (status, body.to_string()));
    }

    /// The requests since the last call.
    pub(super) fn take_requests(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut lock(&self.state).requests)
    }
}

fn lock(state: &Mutex<StubState>) -> MutexGuard<'_, StubState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
