//! Renders lookup responses. The functions that write a body are private to this module, so the rest of the crate has
//! four ways to get one:
//!
//! - [`Renderer::render`] takes an [`Admitted`] by value, which proves that the request was charged.
//! - [`self_lookup::self_lookup`] is uncharged: the landing page shows visitors their own data.
//! - [`sample_caller`] renders made-up callers, for test keys and for [`example`].
//! - [`example`] renders the examples of the OpenAPI document.

mod body;
mod cache;
pub(crate) mod example;
pub(crate) mod sample_caller;
pub(crate) mod self_lookup;

use std::sync::Arc;

use axum::response::Response;
use ipseity_domain::{Address, Client};
use ipseity_geo::{Atlas, AtlasReloader};
use ipseity_ledger::Quota;

use crate::admission::admitted::Admitted;
use crate::lookup::renderer::body::render_body;
use crate::lookup::renderer::cache::RenderCache;
use crate::response::json_response;
use crate::response::rate_limit_headers::{BurstUse, RateLimitHeaders};

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
    ///
    /// The paired address is only written to the response. Location and network are those of the connection, and so is the
    /// entry of the cache.
    pub(crate) fn render(&self, client: &Client, paired_address: Option<Address>, admitted: Admitted) -> Response {
        let (field_set, quota, burst) = admitted.into_parts();
        // Loaded once, so that all fields of a response come from the same databases.
        let atlas = self.atlas.current();
        let rendered_facts = self.cache.get_or_render(&atlas, client.address, field_set, quota.now);
        lookup_response(render_body(client, paired_address, &rendered_facts, field_set), &quota, burst)
    }
}

fn lookup_response(body: Vec<u8>, quota: &Quota, burst: Option<BurstUse>) -> Response {
    let mut response = json_response(body);
    RateLimitHeaders::daily(quota).with_burst(burst).write(response.headers_mut());
    response
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use http::StatusCode;
    use http_body_util::BodyExt;
    use ipseity_domain::{ConnectionFacts, Field, FieldSet};
    use ipseity_geo::AtlasSources;
    use serde_json::{Map, Value};

    use super::*;

    #[tokio::test]
    async fn charged_request_gets_its_field_set_and_its_quota() {
        let atlas = AtlasReloader::open(AtlasSources::default(), false).expect("atlas without databases");
        let address = Address::new(Ipv4Addr::new(198, 51, 100, 1).into());
        let client = Client { address, connection: ConnectionFacts::default() };
        let response = Renderer::new(Arc::new(atlas), 1).render(&client, None, Admitted::for_test());
        assert_eq!(
            (response.status(), &response.headers()["x-ratelimit-remaining"]),
            (StatusCode::OK, &"999".parse().expect("valid header"))
        );
        let body = response.into_body().collect().await.expect("complete body").to_bytes();
        let body: Map<String, Value> = serde_json::from_slice(&body).expect("JSON object");
        assert!(body.keys().eq(FieldSet::Demo.fields().map(Field::name)));
        assert_eq!(body["ip"], "198.51.100.1");
    }
}
