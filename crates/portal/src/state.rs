//! The state that all handlers share.

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::Client;
use ipseity_keys::{CommittedChange, KeyService};
use ipseity_ledger::Ledger;
use ipseity_store::{AuthenticatedAccount, EmailRequests, SessionLimits, Store};
use tokio::sync::Semaphore;

use crate::alerts::AlertOptions;
use crate::auth::email_limits::EmailLimits;
use crate::auth::password::PasswordPool;
use crate::auth::secret_lookups::SecretLookups;
use crate::auth::session_cookie::SessionCookie;
use crate::auth::sign_in_counts::SignInCounts;
use crate::auth::throttle::{SubnetThrottle, Throttle};
use crate::auth::webauthn::RelyingParty;
use crate::error::PortalError;
use crate::host::HostServices;
use crate::identity_providers::IdentityProviders;
use crate::leaks::github_keys::GithubKeys;
use crate::legal::text::LegalTexts;
use crate::live::feed::ChangeFeed;
use crate::manage::{ManageLimits, ManageSettings};
use crate::oidc::SignInProvider;
use crate::permits::Permits;
use crate::public_pages::{PageState, PublicPages, PublicPagesSettings};

/// How long changes of an account and its keys count.
const CHANGES_PERIOD: Duration = Duration::from_secs(600);

/// Settings and limits of the portal.
#[derive(Clone, Debug)]
pub struct PortalSettings {
    /// Public URL of this service, without a trailing slash.
    pub base_url: String,
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
    /// Whether emails can be sent.
    pub email_enabled: bool,
    /// How long sessions last.
    pub session_limits: SessionLimits,
    /// Whether accounts must have two-factor authentication.
    pub requires_two_factor: bool,
    /// Maximum number of wrong codes per account in the period of sign-in attempts.
    pub second_factor_attempts_per_account_max: u32,
    /// Number of threads that hash the passwords of strangers.
    pub password_threads: usize,
    /// Number of threads that hash the passwords of members and known browsers.
    pub owner_password_threads: usize,
    /// Maximum number of passwords that wait in each of the two queues.
    pub password_queue_max: usize,
    /// How long attempts to sign in count.
    pub login_attempts_period: Duration,
    /// Maximum number of attempts per subnet in that period.
    pub login_attempts_per_subnet_max: u32,
    /// Maximum number of wrong passwords per account in that period, from browsers that never signed in to it. The same number
    /// is allowed from each browser that did, and to members who confirm their password.
    pub login_attempts_per_account_max: u32,
    /// Maximum number of subnets and of accounts whose attempts are counted.
    pub login_attempts_entries_max: usize,
    /// Maximum number of lookups of unknown cookies and links per subnet in ten minutes.
    pub unknown_lookups_per_subnet_max: u32,
    /// Maximum number of emails of a kind per address per hour.
    pub emails_per_address_per_hour_max: u32,
    /// Maximum number of requests for emails per subnet in ten minutes.
    pub emails_per_subnet_per_10_min_max: u32,
    /// Maximum number of requests for sign-up and password reset emails per hour.
    pub emails_per_node_per_hour_max: u32,
    /// Maximum number of landing pages with the visitor's lookup per subnet per minute.
    pub self_lookups_per_subnet_per_min_max: u32,
    /// Whether GitHub may report leaked keys.
    pub receives_github_reports: bool,
    /// Maximum number of added passkeys and linked accounts, and of requested changes of the address, per account in ten minutes.
    pub account_changes_per_account_max: u32,
    /// Maximum number of key actions per account in ten minutes.
    pub key_actions_per_account_max: u32,
    /// Limits of channels for alerts.
    pub alerts: AlertOptions,
    /// Limits of the management API.
    pub manage: ManageSettings,
    /// Maximum number of open event streams.
    pub event_streams_max: usize,
    /// Maximum number of open event streams per account.
    pub event_streams_per_account_max: usize,
    /// Maximum size of a form, in bytes.
    pub form_bytes_max: usize,
    /// Maximum time to produce a page.
    pub page_timeout: Duration,
}

impl PortalSettings {
    /// The settings of the pages that remote nodes serve too.
    fn public_pages(&self) -> PublicPagesSettings {
        PublicPagesSettings {
            base_url: self.base_url.clone(),
            portal_url: self.base_url.clone(),
            require_https: self.require_https,
            contact: self.contact.clone(),
            security_contact: self.security_contact.clone(),
            legal_texts: self.legal_texts.clone(),
            demo_daily_limit: self.demo_daily_limit,
            signup_open: self.signup_open,
            self_lookups_per_subnet_per_min_max: self.self_lookups_per_subnet_per_min_max,
            page_timeout: self.page_timeout,
        }
    }
}

/// The shared state of all pages.
pub struct Portal {
    pub(crate) store: Store,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) key_service: KeyService,
    pub(crate) settings: PortalSettings,
    pub(crate) public_pages: PublicPages,
    pub(crate) password_pool: PasswordPool,
    pub(crate) subnet_throttle: SubnetThrottle,
    pub(crate) account_throttle: Throttle<[u8; 32]>,
    pub(crate) device_throttle: Throttle<[u8; 32]>,
    /// Passwords that members confirm, by account.
    pub(crate) confirmation_throttle: Throttle<i64>,
    /// Codes of second factors, by account.
    pub(crate) second_factor_throttle: Throttle<i64>,
    pub(crate) sign_in_counts: SignInCounts,
    pub(crate) secret_lookups: SecretLookups,
    pub(crate) email_limits: EmailLimits,
    /// By account.
    pub(crate) account_change_throttle: Throttle<i64>,
    /// By account.
    pub(crate) key_action_throttle: Throttle<i64>,
    pub(crate) manage_limits: ManageLimits,
    /// `None` if passkeys cannot be bound to the host of the base URL.
    pub(crate) webauthn: Option<RelyingParty>,
    /// Where members can sign in besides passwords and passkeys.
    pub(crate) providers: IdentityProviders,
    pub(crate) github_keys: GithubKeys,
    pub(crate) change_feed: ChangeFeed,
    pub(crate) stream_permits: Arc<Semaphore>,
    pub(crate) account_stream_permits: Permits<i64>,
}

impl Portal {
    /// Creates the state, starts the password threads and renders the documentation.
    #[must_use]
    pub fn new(
        store: Store,
        ledger: Arc<Ledger>,
        key_service: KeyService,
        settings: PortalSettings,
        providers: Vec<SignInProvider>,
        host: Box<dyn HostServices>,
    ) -> Self {
        let (attempts_entries_max, attempts_per_account_max) =
            (settings.login_attempts_entries_max, settings.login_attempts_per_account_max);
        let attempts_period = settings.login_attempts_period;
        Self {
            password_pool: PasswordPool::start(
                settings.password_threads,
                settings.owner_password_threads,
                settings.password_queue_max,
            ),
            subnet_throttle: SubnetThrottle::new(
                settings.login_attempts_per_subnet_max,
                attempts_period,
                attempts_entries_max,
            ),
            account_throttle: Throttle::new(attempts_per_account_max, attempts_period, attempts_entries_max),
            device_throttle: Throttle::new(attempts_per_account_max, attempts_period, attempts_entries_max),
            confirmation_throttle: Throttle::new(attempts_per_account_max, attempts_period, attempts_entries_max),
            second_factor_throttle: Throttle::new(
                settings.second_factor_attempts_per_account_max,
                attempts_period,
                attempts_entries_max,
            ),
            sign_in_counts: SignInCounts::new(),
            secret_lookups: SecretLookups::new(
                settings.unknown_lookups_per_subnet_max,
                attempts_period,
                attempts_entries_max,
            ),
            email_limits: EmailLimits::new(
                settings.emails_per_subnet_per_10_min_max,
                settings.emails_per_node_per_hour_max,
                attempts_entries_max,
            ),
            account_change_throttle: Throttle::new(
                settings.account_changes_per_account_max,
                CHANGES_PERIOD,
                attempts_entries_max,
            ),
            key_action_throttle: Throttle::new(
                settings.key_actions_per_account_max,
                CHANGES_PERIOD,
                attempts_entries_max,
            ),
            manage_limits: ManageLimits::new(&settings.manage, attempts_entries_max),
            webauthn: RelyingParty::from_base_url(&settings.base_url),
            providers: IdentityProviders::new(providers, settings.page_timeout, "members"),
            github_keys: GithubKeys::new(),
            change_feed: ChangeFeed::new(),
            stream_permits: Arc::new(Semaphore::new(settings.event_streams_max)),
            account_stream_permits: Permits::new(settings.event_streams_per_account_max),
            public_pages: PublicPages::new(settings.public_pages(), host, attempts_entries_max),
            store,
            ledger,
            key_service,
            settings,
        }
    }

    /// Removes the networks, accounts and browsers whose attempts no longer count.
    pub(crate) fn remove_expired_attempts(&self) {
        self.subnet_throttle.remove_expired();
        self.account_throttle.remove_expired();
        self.device_throttle.remove_expired();
        self.confirmation_throttle.remove_expired();
        self.second_factor_throttle.remove_expired();
        self.secret_lookups.remove_expired();
        self.email_limits.remove_expired();
        self.public_pages.self_lookup_throttle.remove_expired();
        self.account_change_throttle.remove_expired();
        self.key_action_throttle.remove_expired();
        self.manage_limits.remove_expired();
    }

    /// Requests for emails, with the limit per address.
    pub(crate) const fn email_requests(&self) -> EmailRequests<'_> {
        self.store.email_requests(self.settings.emails_per_address_per_hour_max)
    }

    pub(crate) fn session_idle_timeout_s(&self) -> u64 {
        self.settings.session_limits.idle_timeout.as_secs()
    }
}

impl PageState for Arc<Portal> {
    fn public_pages(&self) -> &PublicPages {
        &self.public_pages
    }

    async fn find_member(
        &self,
        session_cookie: &SessionCookie,
        client: &Client,
    ) -> Result<Option<AuthenticatedAccount>, PortalError> {
        if session_cookie.is_new() {
            return Ok(None);
        }
        let digest = session_cookie.digest();
        let lookup = self.store.sessions().authenticate(&digest, self.settings.session_limits);
        self.secret_lookups.find(digest, client.address.subnet(), lookup).await
    }
}

/// The notice after a change: the given one, or that it is saved and takes effect later.
pub(crate) const fn change_notice(committed: &CommittedChange, notice: &'static str) -> &'static str {
    if committed.publish_error.is_none() { notice } else { "saved" }
}
