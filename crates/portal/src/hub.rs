//! Telling open pages that something has changed: one listener on PostgreSQL for all of them.

use std::time::Duration;

use store::{Store, Woken};
use tokio::sync::{broadcast, watch};

/// Changes that a slow page may lag behind before it is told that it has missed some.
const LAG_MAX: usize = 256;
/// The pause before PostgreSQL is tried again.
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Hub {
    woken: broadcast::Sender<Woken>,
    closed: watch::Sender<bool>,
}

/// One open page's ear.
pub(crate) struct Ear {
    woken: broadcast::Receiver<Woken>,
    closed: watch::Receiver<bool>,
    account_id: i64,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self { woken: broadcast::channel(LAG_MAX).0, closed: watch::channel(false).0 }
    }

    /// Listens for an account's changes.
    pub(crate) fn ear(&self, account_id: i64) -> Ear {
        Ear { woken: self.woken.subscribe(), closed: self.closed.subscribe(), account_id }
    }

    /// Passes on what PostgreSQL tells, for ever.
    pub(crate) async fn run(&self, store: &Store) {
        let mut wake = None;
        loop {
            let heard = match &mut wake {
                None => store.listen_accounts().await.map(|listening| {
                    wake = Some(listening);
                    Woken::All
                }),
                Some(listening) => listening.wait().await,
            };
            match heard {
                // Without an open page nobody hears it.
                Ok(woken) => drop(self.woken.send(woken)),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "open pages are not told of changes for now"
                    );
                    wake = None;
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Ends all streams, so that a drain need not wait for them; their pages come back to another node.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }
}

impl Ear {
    /// Waits until something of the account may have changed; `false` when the stream is to end.
    pub(crate) async fn hear(&mut self) -> bool {
        loop {
            let heard = tokio::select! {
                heard = self.woken.recv() => heard,
                _ = self.closed.wait_for(|closed| *closed) => return false,
            };
            match heard {
                Ok(Woken::Account(id)) if id != self.account_id => {}
                Ok(Woken::Account(_) | Woken::All) | Err(broadcast::error::RecvError::Lagged(_)) => return true,
                Err(broadcast::error::RecvError::Closed) => return false,
            }
        }
    }
}
