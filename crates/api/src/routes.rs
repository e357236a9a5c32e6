//! The router: one handler per operation.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::key_status::key_status_handler;
use crate::lookup::demo::demo_handler;
use crate::lookup::lookup_handler;
use crate::meta::meta_handler;
use crate::openapi::{openapi_json_handler, openapi_yaml_handler};
use crate::operation::Operation;
use crate::pairing::handler::pair_handler;
use crate::state::Api;
use crate::tickets::handler::ticket_handler;

/// Builds the router of all operations. The service answers OPTIONS itself.
pub fn router(api: Arc<Api>) -> Router {
    let add_route = |router: Router<Arc<Api>>, operation: Operation| {
        let handler = match operation {
            Operation::Lookup => get(lookup_handler),
            Operation::Demo => get(demo_handler),
            Operation::KeyStatus => get(key_status_handler),
            Operation::Tickets => post(ticket_handler),
            Operation::Pair => get(pair_handler),
            Operation::Meta => get(meta_handler),
            Operation::OpenapiJson => get(openapi_json_handler),
            Operation::OpenapiYaml => get(openapi_yaml_handler),
        };
        router.route(operation.path(), handler)
    };
    Operation::ALL.into_iter().fold(Router::new(), add_route).with_state(api)
}
