//! The feed of keys whose slots were closed: remote nodes may no longer admit their requests before they are charged.
//!
//! The scripts publish such a key in the same step as the change. A connection to each owner receives it. Redis sends what
//! was published before a `PING` before its reply, so after the replies of all owners the feed is complete up to the time
//! at which they were asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::broadcast;
use tokio::time::{sleep, timeout};

use crate::ledger::Ledger;
use crate::redis::subscription::{SlotNotice, Subscription};

/// Time between rounds of pings.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time of a round. Without its replies, remote nodes soon wait for home.
const ROUND_TIMEOUT: Duration = Duration::from_millis(500);
/// Rounds after which the slot map is read again.
const SLOT_MAP_ROUNDS: u64 = 10;
/// Notices that wait for a slow receiver. After that it gets a notice that it has missed some.
const NOTICES_MAX: usize = 4096;

/// The feed. It tells nothing before [`run`](Self::run) does.
pub struct SlotFeed {
    ledger: Arc<Ledger>,
    notices: broadcast::Sender<SlotNotice>,
}

impl SlotFeed {
    /// A feed of all owners.
    #[must_use]
    pub fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, notices: broadcast::Sender::new(NOTICES_MAX) }
    }

    /// Receives all later notices.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<SlotNotice> {
        self.notices.subscribe()
    }

    /// Follows the owners, until the future is dropped.
    pub async fn run(&self) {
        let mut subscriptions: Vec<Subscription> = Vec::new();
        for round in 0_u64.. {
            let start = Instant::now();
            if round.is_multiple_of(SLOT_MAP_ROUNDS) {
                // A slot can move without an error that says so, if no request of this node is for it.
                self.ledger.router.refresh_slot_map_in_background();
            }
            let is_complete = timeout(ROUND_TIMEOUT, self.run_round(&mut subscriptions)).await;
            match is_complete {
                Ok(true) => self.tell(SlotNotice::CompleteUntil(start)),
                // What could not be subscribed to is tried again. The others are still complete.
                Ok(false) => {}
                Err(_late) => {
                    subscriptions.clear();
                    self.tell(SlotNotice::Missed);
                }
            }
            sleep(ROUND_INTERVAL.saturating_sub(start.elapsed())).await;
        }
    }

    /// Subscribes to owners that are new, and pings all. Returns whether all have answered.
    async fn run_round(&self, subscriptions: &mut Vec<Subscription>) -> bool {
        let router = &self.ledger.router;
        if !router.has_slot_map() && router.slot_map(tokio::time::Instant::now() + ROUND_TIMEOUT).await.is_err() {
            return false;
        }
        let owners = router.last_known_owners();
        subscriptions.retain(|subscription| owners.iter().any(|owner| subscription.is_of(owner)));
        for owner in &owners {
            if !subscriptions.iter().any(|subscription| subscription.is_of(owner)) {
                let notices = self.notices.clone();
                let on_notice = move |notice| drop(notices.send(notice));
                subscriptions.extend(Subscription::open(owner, on_notice).await);
                self.tell(SlotNotice::Missed);
            }
        }
        let answers = join_all(subscriptions.iter().map(Subscription::ping)).await;
        let mut answered = answers.iter();
        subscriptions.retain(|_| answered.next() == Some(&true));
        if answers.contains(&false) {
            self.tell(SlotNotice::Missed);
        }
        subscriptions.len() == owners.len()
    }

    fn tell(&self, notice: SlotNotice) {
        // Without remote nodes there is no receiver.
        let _ = self.notices.send(notice);
    }
}
