//! Renders lookup responses. The functions that write a body are private to this module, so the rest of the crate has
//! three ways to get one:
//!
//! - [`Renderer::render`] takes an [`Admitted`] by value, which proves that the request was charged.
//! - [`self_lookup::self_lookup`] is uncharged: the landing page shows visitors their own data.
//! - [`example`] renders a fictional client for the OpenAPI document.

mod body;
mod cache;
pub(crate) mod example;
pub(crate) mod self_lookup;

use std::sync::Arc;

use axum::response::Response;
use ipseity_domain::Client;
use ipseity_geo::{Atlas, AtlasReloader};
use ipseity_ledger::Quota;

use crate::admission::admitted::Admitted;
use crate::lookup::renderer::body::render_body;
use crate::lookup::renderer::cache::RenderCache;
use crate::response::json_response;
use crate::response::rate_limit_headers::RateLimitHeaders;

/// Locates clients and renders what is known about them.
pub(crate) struct Renderer {
    atlas: Arc<AtlasReloader>,
    cache: RenderCache,
}

impl Renderer {
    pub(crate) fn new(atlas: Arc<AtlasReloader>, cache_entries_max: usize) -> Self {
        Self { atlas, cache: RenderCache::new(cache_entries_max) }
    }

    /// The geo databases in use.
    pub(crate) fn current_atlas(&self) -> Arc<Atlas> {
        self.atlas.current()
    }

    /// Renders the response to a charged request. Consumes the proof, so one charge gives one response.
    pub(crate) fn render(&self, client: &Client, admitted: Admitted) -> Response {
        let (field_set, quota) = admitted.into_parts();
        // Loaded once, so that all fields of a response come from the same databases.
        let atlas = self.atlas.current();
        let rendered_facts = self.cache.get_or_render(&atlas, client.address, field_set, quota.now);
        lookup_response(render_body(client, &rendered_facts, field_set), &quota)
    }
}

fn lookup_response(body: Vec<u8>, quota: &Quota) -> Response {
    let mut response = json_response(body);
    RateLimitHeaders::daily(quota).write(response.headers_mut());
    response
}
