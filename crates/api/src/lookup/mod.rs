//! GET /api/v1/ip: the caller's own metadata, as much of it as the key's scope allows.

pub(crate) mod demo;
pub(crate) mod render;
pub(crate) mod render_cache;
pub(crate) mod self_lookup;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, header};
use ipseity_domain::{Client, FieldSet};
use ipseity_ledger::Quota;

use crate::Api;
use crate::admission::credentials;
use crate::error::Refusal;
use crate::lookup::render::render_body;
use crate::operation::Operation;
use crate::response::rate_limit_headers::RateLimitHeaders;
use crate::service::HEADER_CAPACITY;

pub(crate) async fn lookup_handler(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    parts: Parts,
) -> Response {
    lookup(&api, &client, &parts).await
}

pub(crate) async fn lookup(api: &Api, client: &Client, parts: &Parts) -> Response {
    let result = async {
        let admitted = api.admit(parts).await?;
        let requested_scope = credentials::query_param(parts, "scope");
        Ok(api.render_lookup(
            client,
            FieldSet::Scope(admitted.scope().narrowed_to(requested_scope.as_deref())),
            admitted.quota(),
        ))
    };
    api.finish_response(Operation::Lookup.label(), result.await)
}

impl Api {
    /// Locates the client and projects what is known of it. Whoever calls this has charged the request.
    pub(crate) fn render_lookup(&self, client: &Client, field_set: FieldSet, quota: &Quota) -> Response {
        // Taken once: an answer comes whole from one edition.
        let atlas = self.atlas.current();
        let rendered_facts = self.render_cache.get_or_render(&atlas, client.address, field_set, quota.now);
        lookup_response(render_body(client, &rendered_facts, field_set), quota)
    }

    /// Counts the outcome and turns a refusal into its answer.
    pub(crate) fn finish_response(&self, operation: &'static str, result: Result<Response, Refusal>) -> Response {
        match result {
            Ok(response) => {
                self.metrics.count_request(operation, "success");
                response
            }
            Err(refusal) => {
                self.metrics.count_request(operation, refusal.outcome_label());
                self.error_bodies.response(refusal)
            }
        }
    }
}

/// A body with the headers of a lookup's answer.
pub(crate) fn lookup_response(body: Vec<u8>, quota: &Quota) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.reserve(HEADER_CAPACITY);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    RateLimitHeaders::daily(quota).write(headers);
    response
}
