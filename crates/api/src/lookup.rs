//! GET /api/v1/ip: the caller's own metadata, as much of it as the key's scope allows.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use domain::{Client, View};
use http::request::Parts;
use http::{HeaderValue, header};
use ledger::Charged;

use crate::dress::HEADERS;
use crate::limits::Limits;
use crate::operation::Operation;
use crate::projection::answer;
use crate::refusal::Refusal;
use crate::{Api, credentials};

pub(crate) async fn lookup_route(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    parts: Parts,
) -> Response {
    lookup(&api, &client, &parts).await
}

pub(crate) async fn lookup(api: &Api, client: &Client, parts: &Parts) -> Response {
    let answer = async {
        let admitted = api.admit(parts).await?;
        let wish = credentials::query(parts, "scope");
        Ok(api.answer(client, View::Scope(admitted.scope().narrowed(wish.as_deref())), admitted.charged()))
    };
    api.finish(Operation::Lookup.label(), answer.await)
}

impl Api {
    /// Locates the client and projects what is known of it. Whoever calls this has charged the request.
    pub(crate) fn answer(&self, client: &Client, view: View, charged: &Charged) -> Response {
        // Taken once: an answer comes whole from one edition.
        let atlas = self.shelf.current();
        let told = self.told.find(&atlas, client.address, view, charged.now);
        answer_with(answer(client, &told, view), charged)
    }

    /// Counts the outcome and turns a refusal into its answer.
    pub(crate) fn finish(&self, operation: &'static str, outcome: Result<Response, Refusal>) -> Response {
        match outcome {
            Ok(response) => {
                self.metrics.answered(operation, "success");
                response
            }
            Err(refusal) => {
                self.metrics.answered(operation, refusal.outcome());
                self.wordings.answer(refusal)
            }
        }
    }
}

/// A body with the headers of a lookup's answer.
pub(crate) fn answer_with(body: Vec<u8>, charged: &Charged) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.reserve(HEADERS);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Limits::of_day(charged).write(headers);
    response
}
