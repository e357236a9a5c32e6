//! `GET /api/v1/ip/demo`: returns a fixed set of fields. Needs no key; all callers share one daily quota.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ipseity_domain::Client;

use crate::operation::Operation;
use crate::state::Api;

pub(crate) async fn demo_handler(State(api): State<Arc<Api>>, Extension(client): Extension<Client>) -> Response {
    let result =
        api.admission.admit_demo(client.address).await.map(|admitted| api.renderer.render(&client, None, admitted));
    api.finish_response(Operation::Demo.label(), result)
}
