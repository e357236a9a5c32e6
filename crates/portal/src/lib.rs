//! The pages for people: accounts, keys, usage and documentation, rendered here and working without script.
//!
//! Deliberately absent: verdicts (the ledger's), the lookup itself (the API's), and any address in a log, a row or a mail. Every change goes
//! through `posted::Posted`, which proves that the member's own page asked for it.

mod account;
mod assets;
mod csv;
mod docs;
mod enter;
mod events;
mod files;
mod hub;
mod key;
mod keys;
mod landing;
mod link;
mod mail;
mod page;
mod passkeys;
mod password;
mod posted;
mod problem;
mod reference;
mod routes;
mod signin;
mod signup;
mod throttle;
mod time;
mod usage;
mod view;
mod visit;

use std::sync::Arc;
use std::time::Duration;

use domain::{Change, Client, Neighbourhood};
use ledger::Ledger;
use serde_json::Value;
use store::Store;
use tokio::sync::Semaphore;
use webauthn_rs::Webauthn;

pub use docs::Attribution;
pub use landing::Reflection;
pub use link::invitation;
pub use mail::{MailError, MailOptions, Post};
pub use routes::{ROUTES, Route, Who, router};

use crate::docs::Library;
use crate::hub::Hub;
use crate::password::Passwords;
use crate::throttle::Throttle;
use crate::visit::Visit;

/// How long tries are counted.
const TRIES_PERIOD: Duration = Duration::from_secs(600);

/// The portal's settings and bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where browsers reach this service, without a slash at the end.
    pub base_url: String,
    /// Where weaknesses are reported, as security.txt tells it; empty: on the pages themselves.
    pub security_contact: String,
    /// Whether strangers may sign up.
    pub signup_open: bool,
    /// Whether mails can be sent.
    pub has_mail: bool,
    /// How long a session may go unused.
    pub session_idle_max: Duration,
    /// Threads that check passwords.
    pub hashes_max: usize,
    /// Passwords that wait for them.
    pub hashes_waiting_max: usize,
    /// Tries within ten minutes from one network.
    pub tries_per_network_max: u32,
    /// Wrong passwords within ten minutes on one account, from browsers that never signed in to it.
    pub tries_per_account_max: u32,
    /// Networks and accounts whose tries are counted.
    pub tries_entries_max: usize,
    /// Open pages that are told of changes.
    pub streams_max: usize,
    /// Bytes of a form.
    pub form_bytes_max: usize,
    /// Time for a page.
    pub page_timeout: Duration,
}

/// What the pages show of the rest of the service.
pub trait Surroundings: Send + Sync {
    /// Whom the data is owed to; asked each time, since it changes with the data.
    fn attributions(&self) -> Vec<Attribution>;
    /// A client's own answer, uncharged; `None` if there is none to be had.
    fn reflect(&self, client: &Client) -> Option<Reflection>;
    /// The interface as an OpenAPI document.
    fn openapi(&self) -> &Value;
}

/// What the pages share.
pub struct Portal {
    store: Store,
    ledger: Arc<Ledger>,
    settings: Settings,
    passwords: Passwords,
    by_network: Throttle<Neighbourhood>,
    by_account: Throttle<[u8; 32]>,
    by_device: Throttle<[u8; 32]>,
    /// `None` where the service's address is not one that passkeys can be bound to.
    passkeys: Option<Webauthn>,
    hub: Hub,
    streams: Arc<Semaphore>,
    library: Library,
    surroundings: Box<dyn Surroundings>,
}

impl Portal {
    /// Puts the parts together, and makes the documentation ready.
    #[must_use]
    pub fn new(store: Store, ledger: Arc<Ledger>, settings: Settings, surroundings: Box<dyn Surroundings>) -> Self {
        let (entries_max, per_account) = (settings.tries_entries_max, settings.tries_per_account_max);
        Self {
            passwords: Passwords::start(settings.hashes_max, settings.hashes_waiting_max),
            by_network: Throttle::new(settings.tries_per_network_max, TRIES_PERIOD, entries_max),
            by_account: Throttle::new(per_account, TRIES_PERIOD, entries_max),
            by_device: Throttle::new(per_account, TRIES_PERIOD, entries_max),
            passkeys: passkeys::open(&settings.base_url),
            hub: Hub::new(),
            streams: Arc::new(Semaphore::new(settings.streams_max)),
            library: Library::open(&settings.base_url),
            surroundings,
            store,
            ledger,
            settings,
        }
    }

    async fn find_member(&self, visit: &Visit) -> Result<Option<store::Member>, store::StoreError> {
        self.store.find_member(&visit.digest(), self.settings.session_idle_max).await
    }

    fn idle_max_s(&self) -> u64 {
        self.settings.session_idle_max.as_secs()
    }

    /// Brings a committed change to the counter store; `false` when that is away, and a node's relay does it as soon as it can.
    async fn publish(&self, change: &Change) -> bool {
        if let Err(error) = self.ledger.apply(change).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a change is saved but not yet in force");
            return false;
        }
        if let Err(error) = self.store.applied(change).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a change is in force but still in the outbox");
        }
        true
    }
}
