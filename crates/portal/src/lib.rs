//! The pages for people: accounts, keys, usage and documentation, rendered here and working without script.
//!
//! Deliberately absent: verdicts (the ledger's), the lookup itself (the API's), and any address in a log, a row or a mail. Every change goes
//! through `posted::Posted`, which proves that the member's own page asked for it.

mod account;
mod assets;
mod auth;
mod docs;
mod error;
mod keys;
mod landing;
mod live;
mod mail;
mod page;
mod reference;
mod routes;
mod site_files;
mod time;
mod view;

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::{Client, ClientSubnet, KeyChange};
use ipseity_ledger::Ledger;
use ipseity_store::Store;
use serde_json::Value;
use tokio::sync::Semaphore;
use webauthn_rs::Webauthn;

pub use auth::link::generate_invitation;
pub use docs::DataAttribution;
pub use landing::VisitorLookup;
pub use mail::{MailerError, MailerOptions, PortalWorker};
pub use routes::{PORTAL_ROUTES, PortalRoute, RouteAccess, router};

use crate::auth::password::PasswordPool;
use crate::auth::session_cookie::SessionCookie;
use crate::auth::throttle::Throttle;
use crate::docs::DocsIndex;
use crate::live::feed::ChangeFeed;

/// How long tries are counted.
const LOGIN_ATTEMPTS_PERIOD: Duration = Duration::from_secs(600);

/// The portal's settings and bounds.
#[derive(Clone, Debug)]
pub struct PortalSettings {
    /// Where browsers reach this service, without a slash at the end.
    pub base_url: String,
    /// Where weaknesses are reported, as security.txt tells it; empty: on the pages themselves.
    pub security_contact: String,
    /// Whether strangers may sign up.
    pub signup_open: bool,
    /// Whether mails can be sent.
    pub email_enabled: bool,
    /// How long a session may go unused.
    pub session_idle_timeout: Duration,
    /// Threads that check passwords.
    pub password_threads: usize,
    /// Passwords that wait for them.
    pub password_queue_max: usize,
    /// Tries within ten minutes from one network.
    pub login_attempts_per_subnet_max: u32,
    /// Wrong passwords within ten minutes on one account, from browsers that never signed in to it.
    pub login_attempts_per_account_max: u32,
    /// Networks and accounts whose tries are counted.
    pub login_attempts_entries_max: usize,
    /// Open pages that are told of changes.
    pub event_streams_max: usize,
    /// Bytes of a form.
    pub form_bytes_max: usize,
    /// Time for a page.
    pub page_timeout: Duration,
}

/// What the pages show of the rest of the service.
pub trait HostServices: Send + Sync {
    /// Whom the data is owed to; asked each time, since it changes with the data.
    fn data_attributions(&self) -> Vec<DataAttribution>;
    /// A client's own answer, uncharged; `None` if there is none to be had.
    fn self_lookup(&self, client: &Client) -> Option<VisitorLookup>;
    /// The interface as an OpenAPI document.
    fn openapi_document(&self) -> &Value;
}

/// What the pages share.
pub struct Portal {
    store: Store,
    ledger: Arc<Ledger>,
    settings: PortalSettings,
    password_pool: PasswordPool,
    subnet_throttle: Throttle<ClientSubnet>,
    account_throttle: Throttle<[u8; 32]>,
    device_throttle: Throttle<[u8; 32]>,
    /// `None` where the service's address is not one that passkeys can be bound to.
    webauthn: Option<Webauthn>,
    change_feed: ChangeFeed,
    stream_permits: Arc<Semaphore>,
    docs_index: DocsIndex,
    host: Box<dyn HostServices>,
}

impl Portal {
    /// Puts the parts together, and makes the documentation ready.
    #[must_use]
    pub fn new(store: Store, ledger: Arc<Ledger>, settings: PortalSettings, host: Box<dyn HostServices>) -> Self {
        let (attempts_entries_max, attempts_per_account_max) =
            (settings.login_attempts_entries_max, settings.login_attempts_per_account_max);
        Self {
            password_pool: PasswordPool::start(settings.password_threads, settings.password_queue_max),
            subnet_throttle: Throttle::new(
                settings.login_attempts_per_subnet_max,
                LOGIN_ATTEMPTS_PERIOD,
                attempts_entries_max,
            ),
            account_throttle: Throttle::new(attempts_per_account_max, LOGIN_ATTEMPTS_PERIOD, attempts_entries_max),
            device_throttle: Throttle::new(attempts_per_account_max, LOGIN_ATTEMPTS_PERIOD, attempts_entries_max),
            webauthn: auth::passkeys::build_webauthn(&settings.base_url),
            change_feed: ChangeFeed::new(),
            stream_permits: Arc::new(Semaphore::new(settings.event_streams_max)),
            docs_index: DocsIndex::build(&settings.base_url),
            host,
            store,
            ledger,
            settings,
        }
    }

    async fn find_member(
        &self,
        session_cookie: &SessionCookie,
    ) -> Result<Option<ipseity_store::AuthenticatedAccount>, ipseity_store::StoreError> {
        self.store.sessions().authenticate(&session_cookie.digest(), self.settings.session_idle_timeout).await
    }

    fn session_idle_timeout_s(&self) -> u64 {
        self.settings.session_idle_timeout.as_secs()
    }

    /// Brings a committed change to the counter store; `false` when that is away, and a node's relay does it as soon as it can.
    async fn apply_key_change(&self, change: &KeyChange) -> bool {
        if let Err(error) = self.ledger.apply_change(change).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a change is saved but not yet in force");
            return false;
        }
        if let Err(error) = self.store.outbox().ack(change).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a change is in force but still in the outbox");
        }
        true
    }
}
