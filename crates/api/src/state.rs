//! The state that the handlers share.

use std::sync::Arc;

use axum::response::Response;
use ipseity_domain::Client;
use ipseity_geo::AtlasReloader;
use serde_json::Value;

use crate::admission::Admission;
use crate::admission::backend::Backend;
use crate::admission::usage_buffer::UsageBuffer;
use crate::blocked_networks::BlockedNetworks;
use crate::error::{ErrorBodies, Refusal};
use crate::key_status::reader::KeyStatusReader;
use crate::limits::ApiLimits;
use crate::lookup::renderer::Renderer;
use crate::openapi::document::{OpenApiDocuments, openapi_document};
use crate::pairing::Pairing;
use crate::public_urls::PublicUrls;
use crate::service::metrics::ApiMetrics;
use crate::tickets::Tickets;

/// The state that the handlers share.
pub struct Api {
    pub(crate) admission: Arc<Admission>,
    pub(crate) renderer: Renderer,
    pub(crate) key_status_reader: KeyStatusReader,
    pub(crate) error_bodies: ErrorBodies,
    pub(crate) openapi_documents: OpenApiDocuments,
    pub(crate) metrics: ApiMetrics,
    /// `None` if the service has no URLs for one address family.
    pub(crate) pairing: Option<Arc<Pairing>>,
    /// `None` if the nodes have no keys in common.
    pub(crate) tickets: Option<Arc<Tickets>>,
    /// `None` if no network is blocked.
    pub(crate) blocked_networks: Option<Arc<BlockedNetworks>>,
    /// Whether the base URL uses HTTPS, so that responses carry HSTS.
    pub(crate) has_https_url: bool,
    /// Whether a key that a client sends over plain HTTP is refused.
    pub(crate) require_https: bool,
    /// Whether test keys work.
    pub(crate) accept_test_keys: bool,
}

impl Api {
    /// Creates the API from its dependencies.
    #[must_use]
    pub fn new(
        backend: Backend,
        atlas: Arc<AtlasReloader>,
        public_urls: PublicUrls,
        usage_buffer: Arc<UsageBuffer>,
        metrics: ApiMetrics,
        limits: ApiLimits,
    ) -> Self {
        Self {
            admission: Arc::new(Admission::new(backend, usage_buffer, metrics.clone(), &limits)),
            renderer: Renderer::new(atlas, limits.render_cache_max),
            key_status_reader: KeyStatusReader::new(limits.key_status),
            openapi_documents: OpenApiDocuments::new(&openapi_document(&public_urls)),
            has_https_url: public_urls.base.starts_with("https://"),
            require_https: false,
            accept_test_keys: true,
            pairing: None,
            tickets: None,
            blocked_networks: None,
            error_bodies: ErrorBodies::new(public_urls),
            metrics,
        }
    }

    /// Sets whether a key that a client sends over plain HTTP is refused.
    #[must_use]
    pub fn with_https_required(self, require_https: bool) -> Self {
        Self { require_https, ..self }
    }

    /// Sets whether test keys work.
    #[must_use]
    pub fn with_test_keys(self, accept_test_keys: bool) -> Self {
        Self { accept_test_keys, ..self }
    }

    /// Whether a client must use HTTPS to send a key, and does not.
    pub(crate) fn needs_https(&self, client: &Client) -> bool {
        self.require_https && client.connection.is_encrypted == Some(false)
    }

    /// Sets how callers get both of their addresses.
    #[must_use]
    pub fn with_pairing(self, pairing: Option<Arc<Pairing>>) -> Self {
        Self { pairing, ..self }
    }

    /// Sets how servers create tickets for pages.
    #[must_use]
    pub fn with_tickets(self, tickets: Option<Arc<Tickets>>) -> Self {
        Self { tickets, ..self }
    }

    /// Sets the OpenAPI document, if it describes more than the operations of this crate.
    #[must_use]
    pub fn with_openapi_document(self, document: &Value) -> Self {
        Self { openapi_documents: OpenApiDocuments::new(document), ..self }
    }

    /// Sets the networks whose requests are refused.
    #[must_use]
    pub fn with_blocked_networks(self, blocked_networks: Option<Arc<BlockedNetworks>>) -> Self {
        Self { blocked_networks, ..self }
    }

    /// The admission of requests, for tasks that recover it and for readiness checks.
    #[must_use]
    pub const fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Counts the outcome of a request and turns a refusal into its response.
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
