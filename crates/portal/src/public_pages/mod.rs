//! The state of the pages that need neither accounts nor stores: the landing page, the documentation and the API reference.
//!
//! Every node serves these pages. A remote node has no other state, and redirects all other routes to the portal of home.

pub(crate) mod home_redirect;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use ipseity_domain::Client;
use ipseity_store::AuthenticatedAccount;

use crate::auth::session_cookie::SessionCookie;
use crate::auth::throttle::SubnetThrottle;
use crate::docs::index::DocsIndex;
use crate::error::PortalError;
use crate::host::HostServices;
use crate::legal::text::{LegalPages, LegalTexts};

/// How often expired counts of lookups and attempts are removed.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How long lookups on the landing page count.
const SELF_LOOKUPS_PERIOD: Duration = Duration::from_secs(60);

/// Settings of the pages of a remote node.
#[derive(Clone, Debug)]
pub struct PublicPagesSettings {
    /// Public URL of this service, without a trailing slash.
    pub base_url: String,
    /// URL of the portal that serves accounts, without a trailing slash.
    pub portal_url: String,
    /// Whether pages requested over plain HTTP redirect to the base URL.
    pub require_https: bool,
    /// URL where people reach the operator. Empty if there is none.
    pub contact: String,
    /// Contact for vulnerability reports in security.txt. If empty, security.txt points to the privacy page.
    pub security_contact: String,
    /// The operator's terms of service and privacy policy.
    pub legal_texts: LegalTexts,
    /// Demo requests per day that all clients share.
    pub demo_daily_limit: u64,
    /// Whether anyone may sign up.
    pub signup_open: bool,
    /// Maximum number of landing pages with the visitor's lookup per subnet per minute.
    pub self_lookups_per_subnet_per_min_max: u32,
    /// Maximum time to produce a page.
    pub page_timeout: Duration,
}

/// The state of the pages that every node serves. Handlers take it as an argument.
#[derive(Clone)]
pub(crate) struct PublicPages {
    pub(crate) settings: Arc<PublicPagesSettings>,
    pub(crate) docs_index: Arc<DocsIndex>,
    pub(crate) legal_pages: Arc<LegalPages>,
    pub(crate) self_lookup_throttle: Arc<SubnetThrottle>,
    pub(crate) host: Arc<dyn HostServices>,
}

impl PublicPages {
    /// Creates the state and renders the documentation. Lookups are counted for at most `subnets_max` subnets.
    pub(crate) fn new(settings: PublicPagesSettings, host: Box<dyn HostServices>, subnets_max: usize) -> Self {
        Self {
            docs_index: Arc::new(DocsIndex::build(&settings.base_url)),
            legal_pages: Arc::new(LegalPages::render(&settings.legal_texts)),
            self_lookup_throttle: Arc::new(SubnetThrottle::new(
                settings.self_lookups_per_subnet_per_min_max,
                SELF_LOOKUPS_PERIOD,
                subnets_max,
            )),
            host: Arc::from(host),
            settings: Arc::new(settings),
        }
    }

    /// Removes expired counts of lookups until the state is dropped. At home, the portal's worker does this.
    pub(crate) fn spawn_sweep(&self) {
        let throttle = Arc::downgrade(&self.self_lookup_throttle);
        tokio::spawn(async move {
            while let Some(throttle) = throttle.upgrade() {
                throttle.remove_expired();
                drop(throttle);
                tokio::time::sleep(SWEEP_INTERVAL).await;
            }
        });
    }
}

/// The state of a node's router: the whole portal at home, only the public pages on a remote node.
pub(crate) trait PageState: Clone + Send + Sync + 'static {
    fn public_pages(&self) -> &PublicPages;

    /// Finds the account that is signed in with this cookie.
    fn find_member(
        &self,
        session_cookie: &SessionCookie,
        client: &Client,
    ) -> impl Future<Output = Result<Option<AuthenticatedAccount>, PortalError>> + Send;
}

/// On a remote node, every visitor is anonymous.
impl PageState for PublicPages {
    fn public_pages(&self) -> &PublicPages {
        self
    }

    async fn find_member(&self, _: &SessionCookie, _: &Client) -> Result<Option<AuthenticatedAccount>, PortalError> {
        Ok(None)
    }
}

impl<S: PageState> FromRequestParts<S> for PublicPages {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Infallible> {
        Ok(state.public_pages().clone())
    }
}
