//! `GET /api/v1/ip`: returns the caller's own data, limited to the key's scope.

pub(crate) mod demo;
pub(crate) mod renderer;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::request::Parts;
use ipseity_domain::Client;

use crate::admission::credentials;
use crate::error::Refusal;
use crate::operation::Operation;
use crate::state::Api;

pub(crate) async fn lookup_handler(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    parts: Parts,
) -> Response {
    lookup(&api, &client, &parts).await
}

pub(crate) async fn lookup(api: &Api, client: &Client, parts: &Parts) -> Response {
    let result = async {
        let is_plaintext = client.connection.is_encrypted == Some(false);
        if is_plaintext && api.require_https && credentials::has_key(parts) {
            return Err(Refusal::HttpsRequired);
        }
        let admitted = api.admission.admit(parts).await?;
        let requested_scope = credentials::query_param(parts, "scope");
        Ok(api.renderer.render(client, admitted.narrowed_to(requested_scope.as_deref())))
    };
    api.finish_response(Operation::Lookup.label(), result.await)
}
