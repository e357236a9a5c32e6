//! The lookup API: HTTP for programs.
//!
//! Deliberately absent: sockets (the edge's), pages (the portal's), configuration (the server's). A client's address is read in one place,
//! the projection, and goes into its owner's answer only.

mod admission;
mod error;
mod failpoint;
mod lookup;
mod meta;
mod openapi;
mod operation;
mod public_urls;
mod response;
mod routes;
mod service;

use std::sync::Arc;

use ipseity_domain::KeyId;
use ipseity_geo::AtlasReloader;
use ipseity_ledger::Ledger;
use ipseity_store::Store;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

pub use admission::degraded::DegradedLimits;
pub use admission::usage_buffer::{DrainedUsage, UsageBuffer};
#[cfg(feature = "failpoints")]
pub use failpoint::arm_failpoints;
pub use lookup::self_lookup::{SelfLookup, self_lookup};
pub use openapi::openapi_document;
pub use public_urls::PublicUrls;
pub use routes::router;
pub use service::metrics::ApiMetrics;
pub use service::request_id::RequestId;
pub use service::{PublicService, public_service};

/// The target of spans that are for traces alone: where nobody collects them they are not even made.
pub const TRACE_TARGET: &str = "trace";

/// Bounds of what the API keeps in memory and asks for at once.
#[derive(Clone, Copy, Debug)]
pub struct ApiLimits {
    /// Keys looked up in the durable store at once.
    pub key_fills_max: usize,
    /// Ids remembered as unknown.
    pub unknown_cache_max: usize,
    /// Keys remembered as refused.
    pub refusal_cache_max: usize,
    /// Places and networks whose texts are kept.
    pub render_cache_max: usize,
    /// Going on without the counter store.
    pub degraded: DegradedLimits,
}

/// What the handlers share.
pub struct Api {
    ledger: Arc<Ledger>,
    store: Store,
    atlas: Arc<AtlasReloader>,
    error_bodies: error::ErrorBodies,
    usage_buffer: Arc<UsageBuffer>,
    metrics: ApiMetrics,
    /// Ids that do not exist. They are random and never reused, so this cannot go stale; it also makes looking one up single-flight.
    unknown_keys: Cache<KeyId, ()>,
    key_fills: Semaphore,
    refusal_cache: admission::refusal_cache::RefusalCache,
    demo_refusal_cache: lookup::demo::DemoRefusalCache,
    degraded: admission::degraded::DegradedMode,
    openapi_documents: openapi::OpenApiDocuments,
    render_cache: lookup::render_cache::RenderCache,
}

impl Api {
    /// Puts the parts together.
    #[must_use]
    pub fn new(
        ledger: Arc<Ledger>,
        store: Store,
        atlas: Arc<AtlasReloader>,
        public_urls: PublicUrls,
        usage_buffer: Arc<UsageBuffer>,
        metrics: ApiMetrics,
        limits: ApiLimits,
    ) -> Self {
        Self {
            ledger,
            store,
            atlas,
            openapi_documents: openapi::OpenApiDocuments::new(&public_urls),
            error_bodies: error::ErrorBodies::new(public_urls),
            usage_buffer,
            metrics,
            unknown_keys: Cache::new(limits.unknown_cache_max),
            key_fills: Semaphore::new(limits.key_fills_max),
            refusal_cache: admission::refusal_cache::RefusalCache::new(limits.refusal_cache_max),
            demo_refusal_cache: lookup::demo::DemoRefusalCache::default(),
            degraded: admission::degraded::DegradedMode::new(limits.degraded),
            render_cache: lookup::render_cache::RenderCache::new(limits.render_cache_max),
        }
    }
}
