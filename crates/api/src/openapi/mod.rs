//! `GET /api/v1/openapi.json` and `.yaml`: the API as OpenAPI 3.1.

pub(crate) mod additions;
pub(crate) mod document;
mod example;
mod header;
mod schema;
mod yaml;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::operation::Operation;
use crate::response::cacheable_response;
use crate::state::Api;

pub(crate) async fn openapi_json_handler(State(api): State<Arc<Api>>) -> Response {
    let response = cacheable_response(api.openapi_documents.json.clone(), "application/json");
    api.finish_response(Operation::OpenapiJson.label(), Ok(response))
}

pub(crate) async fn openapi_yaml_handler(State(api): State<Arc<Api>>) -> Response {
    let response = cacheable_response(api.openapi_documents.yaml.clone(), "application/yaml");
    api.finish_response(Operation::OpenapiYaml.label(), Ok(response))
}
