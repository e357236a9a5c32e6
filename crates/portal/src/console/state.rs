//! The state that all pages of the console share.

use std::sync::Arc;
use std::time::Duration;

use ipseity_ledger::Ledger;
use ipseity_store::{Operator, OperatorSessionLimits, Store};
use url::Url;

use crate::auth::throttle::Throttle;
use crate::auth::webauthn::RelyingParty;
use crate::console::error::ConsoleError;
use crate::console::host::{ConsoleHost, OperatorStores};
use crate::identity_providers::IdentityProviders;
use crate::oidc::SignInProvider;

/// How long sign-in attempts and actions count.
const THROTTLE_PERIOD: Duration = Duration::from_secs(600);
/// Maximum number of operators whose actions are counted.
const OPERATORS_MAX: usize = 1000;

/// Settings of the console.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// URL at which operators open the console.
    pub url: Url,
    /// Public URL of the service, for links in messages to owners.
    pub base_url: String,
    /// Whether emails can be sent.
    pub email_enabled: bool,
    /// Whether servers can create tickets for pages.
    pub has_tickets: bool,
    /// Maximum number of password reset emails per address per hour.
    pub emails_per_address_per_hour_max: u32,
    /// How long sessions last.
    pub session_limits: OperatorSessionLimits,
    /// Maximum number of attempts to sign in on this node in ten minutes.
    pub sign_in_attempts_max: u32,
    /// Maximum number of forms per operator in ten minutes.
    pub actions_per_operator_max: u32,
    /// Maximum size of a form, in bytes.
    pub form_bytes_max: usize,
    /// Maximum time to produce a page.
    pub page_timeout: Duration,
}

/// The shared state of the console.
pub struct Console {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) settings: ConsoleSettings,
    pub(crate) host: Box<dyn ConsoleHost>,
    /// Where operators can sign in besides passkeys.
    pub(crate) providers: IdentityProviders,
    /// `None` if passkeys cannot be bound to the host of the URL.
    pub(crate) webauthn: Option<RelyingParty>,
    pub(crate) sign_in_throttle: Throttle<()>,
    /// By operator.
    pub(crate) action_throttle: Throttle<i64>,
}

impl Console {
    /// Creates the state.
    #[must_use]
    pub fn new(
        store: Store,
        ledger: Arc<Ledger>,
        settings: ConsoleSettings,
        providers: Vec<SignInProvider>,
        host: Box<dyn ConsoleHost>,
    ) -> Self {
        Self {
            providers: IdentityProviders::new(providers, settings.page_timeout, "operators"),
            webauthn: RelyingParty::from_base_url(settings.url.as_str()),
            sign_in_throttle: Throttle::new(settings.sign_in_attempts_max, THROTTLE_PERIOD, 1),
            action_throttle: Throttle::new(settings.actions_per_operator_max, THROTTLE_PERIOD, OPERATORS_MAX),
            store,
            ledger,
            settings,
            host,
        }
    }

    /// Rejects a form that would queue an email, if none can be sent.
    pub(crate) fn require_email(&self) -> Result<(), ConsoleError> {
        let reason = "This service sends no email: [mail] smtp_url is empty.";
        if self.settings.email_enabled { Ok(()) } else { Err(ConsoleError::Rejected(reason.to_owned())) }
    }

    /// Stores for a change of this operator.
    pub(crate) fn stores_of(&self, operator: &Operator) -> Result<OperatorStores, ConsoleError> {
        self.host.open_stores(&operator.name).ok_or(ConsoleError::Unavailable)
    }
}
