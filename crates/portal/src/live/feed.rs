//! Distributes change notifications from PostgreSQL to open pages, with one listener for all of them.

use std::time::Duration;

use ipseity_domain::causes;
use ipseity_store::{AccountEvent, Store};
use tokio::sync::{broadcast, watch};

/// Number of events a slow page may lag behind before it misses some and has to reload.
const BUFFERED_EVENTS_MAX: usize = 256;
/// Delay before reconnecting to PostgreSQL.
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub(crate) struct ChangeFeed {
    events: broadcast::Sender<AccountEvent>,
    is_closed: watch::Sender<bool>,
}

/// The subscription of one open page.
pub(crate) struct ChangeSubscription {
    events: broadcast::Receiver<AccountEvent>,
    is_closed: watch::Receiver<bool>,
    account_id: i64,
}

impl ChangeFeed {
    pub(crate) fn new() -> Self {
        Self { events: broadcast::channel(BUFFERED_EVENTS_MAX).0, is_closed: watch::channel(false).0 }
    }

    /// Subscribes to the changes of an account.
    pub(crate) fn subscribe(&self, account_id: i64) -> ChangeSubscription {
        ChangeSubscription { events: self.events.subscribe(), is_closed: self.is_closed.subscribe(), account_id }
    }

    /// Forwards notifications from PostgreSQL, forever.
    pub(crate) async fn run(&self, store: &Store) {
        let mut listener = None;
        loop {
            let received = match &mut listener {
                None => store.accounts().listen().await.map(|new_listener| {
                    listener = Some(new_listener);
                    AccountEvent::Resync
                }),
                Some(new_listener) => new_listener.wait().await,
            };
            match received {
                // Sending fails only if no page is open.
                Ok(event) => drop(self.events.send(event)),
                Err(error) => {
                    tracing::warn!(error = %causes(&error), "change feed disconnected");
                    listener = None;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// Ends all streams, so that a drain does not wait for them. The pages reconnect to another node.
    pub(crate) fn close(&self) {
        self.is_closed.send_replace(true);
    }
}

impl ChangeSubscription {
    /// Waits until the account may have changed. Returns `false` when the stream has to end.
    pub(crate) async fn wait_for_change(&mut self) -> bool {
        loop {
            let received = tokio::select! {
                received = self.events.recv() => received,
                _ = self.is_closed.wait_for(|closed| *closed) => return false,
            };
            match received {
                Ok(AccountEvent::Changed(id)) if id != self.account_id => {}
                Ok(AccountEvent::Changed(_) | AccountEvent::Resync) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    return true;
                }
                Err(broadcast::error::RecvError::Closed) => return false,
            }
        }
    }
}
