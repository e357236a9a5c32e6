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
use crate::redis::node::RedisNode;
use crate::redis::subscription::{SlotNotice, Subscription};

/// Time between rounds of pings.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time of an answer. Without it, remote nodes soon wait for home.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between attempts to subscribe, for example without the rights to.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
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

    /// Follows the owners while there are receivers, until the future is dropped.
    pub async fn run(&self) {
        let mut subscriptions = Subscriptions::default();
        for round in 0_u64.. {
            let start = Instant::now();
            if self.notices.receiver_count() == 0 {
                subscriptions = Subscriptions::default();
            } else {
                if round.is_multiple_of(SLOT_MAP_ROUNDS) {
                    // A slot can move without an error that says so, if no request of this node is for it.
                    self.ledger.router.refresh_slot_map_in_background();
                }
                self.run_round(start, &mut subscriptions).await;
            }
            sleep(ROUND_INTERVAL.saturating_sub(start.elapsed())).await;
        }
    }

    /// Subscribes to owners that are new, and pings all.
    async fn run_round(&self, start: Instant, subscriptions: &mut Subscriptions) {
        let router = &self.ledger.router;
        if !router.has_slot_map() && router.slot_map(tokio::time::Instant::now() + ANSWER_TIMEOUT).await.is_err() {
            return;
        }
        let owners = router.last_known_owners();
        let open = &mut subscriptions.open;
        open.retain(|subscription| owners.iter().any(|owner| subscription.is_of(owner)));
        let new = owners.iter().filter(|owner| !open.iter().any(|subscription| subscription.is_of(owner)));
        let new: Vec<_> = new.filter(|_| subscriptions.retry_at.is_none_or(|retry_at| retry_at <= start)).collect();
        let mut has_missed = false;
        if !new.is_empty() {
            let opened = join_all(new.iter().map(|owner| self.subscribe_to(owner))).await;
            has_missed = opened.iter().any(Option::is_some);
            let has_failed = opened.iter().any(Option::is_none);
            subscriptions.retry_at = has_failed.then(|| start + RETRY_INTERVAL);
            subscriptions.open.extend(opened.into_iter().flatten());
        }
        // A server that does not answer delays no other, but the feed is not complete without it.
        let answers =
            join_all(subscriptions.open.iter().map(|subscription| timeout(ANSWER_TIMEOUT, subscription.ping())));
        let answers: Vec<_> = answers.await.into_iter().map(|answer| answer.unwrap_or(false)).collect();
        let mut answered = answers.iter();
        subscriptions.open.retain(|_| answered.next() == Some(&true));
        if has_missed || answers.contains(&false) {
            self.tell(SlotNotice::Missed);
        }
        if subscriptions.open.len() == owners.len() {
            self.tell(SlotNotice::CompleteUntil(start));
        }
    }

    async fn subscribe_to(&self, owner: &Arc<RedisNode>) -> Option<Subscription> {
        let notices = self.notices.clone();
        let on_notice = move |notice| drop(notices.send(notice));
        timeout(ANSWER_TIMEOUT, Subscription::open(owner, on_notice)).await.ok().flatten()
    }

    fn tell(&self, notice: SlotNotice) {
        // There may be no receiver any more.
        let _ = self.notices.send(notice);
    }
}

#[derive(Default)]
struct Subscriptions {
    open: Vec<Subscription>,
    /// When to subscribe again to servers that have failed.
    retry_at: Option<Instant>,
}
