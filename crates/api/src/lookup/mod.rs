//! `GET /api/v1/ip`: returns the caller's own data, limited to the key's scope.

pub(crate) mod demo;
pub(crate) mod renderer;
pub(crate) mod test_failure;
pub(crate) mod test_key;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::HeaderValue;
use http::request::Parts;
use ipseity_domain::{ApiKey, Client, TICKET_PREFIX};

use crate::admission::credentials;
use crate::credential::find_credential;
use crate::error::Refusal;
use crate::operation::Operation;
use crate::pairing::{PAIR_UNUSED_HEADER, paired_address};
use crate::state::Api;

pub(crate) async fn lookup_handler(
    State(api): State<Arc<Api>>,
    Extension(client): Extension<Client>,
    parts: Parts,
) -> Response {
    lookup(&api, &client, &parts).await
}

pub(crate) async fn lookup(api: &Api, client: &Client, parts: &Parts) -> Response {
    let needs_https = api.needs_https(client);
    let credential = find_credential(parts);
    if let Some(scope) = test_key::find_test_scope(api, &credential) {
        return test_key::test_response(api, needs_https, || test_key::sample_response(scope, parts));
    }
    let result = async {
        if needs_https && credentials::has_key(parts) {
            return Err(Refusal::HttpsRequired);
        }
        let credential = credential?;
        let admitted = match ApiKey::parse(&credential) {
            Some(key) => api.admission.admit(client, parts, key, None).await?,
            None if credential.starts_with(TICKET_PREFIX) => {
                Box::pin(api.admit_ticket(client, parts, &credential)).await?
            }
            None => return Err(Refusal::InvalidKey),
        };
        let requested_scope = credentials::query_param(parts, "scope");
        let paired = paired_address(api.pairing.as_deref(), client, &parts.headers);
        let address = paired.and_then(Result::ok);
        let mut response = api.renderer.render(client, address, admitted.narrowed_to(requested_scope.as_deref()));
        if let Some(Err(unused)) = paired {
            response.headers_mut().insert(PAIR_UNUSED_HEADER, HeaderValue::from_static(unused.name()));
        }
        Ok(response)
    };
    api.finish_response(Operation::Lookup.label(), result.await)
}
