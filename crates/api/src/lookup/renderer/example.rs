//! The examples of the OpenAPI document, rendered by the same code as real responses.

use axum::response::Response;
use ipseity_domain::plan::FREE_DAILY_LIMIT;
use ipseity_domain::{BURST_LIMIT, FieldSet};
use ipseity_ledger::Quota;
use serde_json::Value;

use crate::lookup::renderer::lookup_response;
use crate::lookup::renderer::sample_caller::HOME;
use crate::operation::EXAMPLE_NOW;
use crate::response::rate_limit_headers::BurstUse;

/// The body of a lookup.
pub(crate) fn example_body(field_set: FieldSet) -> Value {
    serde_json::from_slice(&HOME.body(field_set)).unwrap_or_default()
}

/// The response to a lookup, with its headers and without a body. A demo request has no burst limit.
pub(crate) fn example_lookup_headers(burst: Option<BurstUse>) -> Response {
    let (now, limit, burst_limit) = (EXAMPLE_NOW, FREE_DAILY_LIMIT, BURST_LIMIT);
    let quota = Quota { now, limit, day: now.day(), used: 42, burst_limit };
    lookup_response(Vec::new(), &quota, burst)
}
