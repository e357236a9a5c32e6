//! Finding back to the counter store: asks whether it answers, lets no charge overtake a revocation, and makes the books right.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use api::Api;
use edge::Drain;
use store::Store;
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

use crate::relay::Relay;

/// Time for the durable store to show that it is there.
const STORE_CHECK_MAX: Duration = Duration::from_millis(500);
/// Between a lost connection to the durable store and the next.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// How long a node that ends tries to leave its books right: longer than a late call can take to arrive.
const LAST_TRIES: Duration = Duration::from_secs(6);

pub(crate) struct Healer {
    pub(crate) api: Arc<Api>,
    pub(crate) relay: Arc<Relay>,
    pub(crate) interval: Duration,
}

impl Healer {
    /// Looks after the books until the drain starts.
    pub(crate) async fn run(&self, drain: Drain) {
        let mut tick = tokio::time::interval(self.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => drop(self.round().await),
                () = drain.started() => return,
            }
        }
    }

    /// Leaves nothing unsettled behind, if a store is there to take it.
    pub(crate) async fn finish(&self) {
        let deadline = Instant::now() + LAST_TRIES;
        let mut left = self.round().await;
        while left > 0 && Instant::now() < deadline {
            sleep(self.interval).await;
            left = self.round().await;
        }
        if left > 0 {
            tracing::error!(
                left,
                "requests that were admitted without the counter store are lost: it did not come back"
            );
        }
    }

    /// Does what can be done now; returns how many requests are still to be settled.
    async fn round(&self) -> u64 {
        self.api.record_own_pauses().await;
        if self.api.is_recalling()
            && let Err(error) = self.find_back().await
        {
            tracing::debug!(error = &*error, "the counter store is still away");
            return self.api.count_unsettled();
        }
        self.api.settle().await
    }

    async fn find_back(&self) -> Result<()> {
        self.api.check_ledger().await?;
        let store = &self.relay.store;
        if matches!(timeout(STORE_CHECK_MAX, store.check()).await, Ok(Ok(()))) {
            self.relay.drain_outbox().await?;
            ensure!(store.outbox_is_empty().await?, "another node is still bringing changes to the counter store");
        } else {
            self.api.publish_refused().await?;
        }
        self.api.settle().await;
        self.api.stop_recalling();
        Ok(())
    }
}

/// Follows the durable store's news of keys, so that what a node remembers of them is doubted in time.
pub(crate) async fn follow(api: Arc<Api>, store: Store, drain: Drain) {
    let listen = async {
        loop {
            if let Ok(mut news) = store.listen_keys().await {
                api.follows_news(true);
                while news.wait().await.is_ok() {
                    api.doubt();
                }
                api.follows_news(false);
            }
            sleep(RECONNECT_PAUSE).await;
        }
    };
    tokio::select! {
        () = listen => {}
        () = drain.started() => {}
    }
}
