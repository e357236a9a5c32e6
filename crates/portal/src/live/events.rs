//! Server-sent events: notify an open page that it may be out of date, so that it reloads its content.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::Uri;
use http::header::CONTENT_TYPE;
use ipseity_domain::KeyStatus;
use ipseity_keys::{KeyActivity, StoredKey};
use ipseity_store::KeySummary;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::error::PortalError;
use crate::keys::list::{key_list_version, load_activities};
use crate::live::feed::ChangeSubscription;
use crate::page::CurrentMember;
use crate::permits::Permit;
use crate::state::Portal;
use crate::time;

/// How often the usage and the status of keys are polled. A page shows the first request of a key within two seconds.
const USAGE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often a heartbeat is sent and the session is checked.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

const CHANGED_EVENT: &str = "event: changed\ndata:\n\n";
const SIGNED_OUT_EVENT: &str = "event: signed-out\ndata:\n\n";
const HEARTBEAT: &str = ": alive\n\n";

struct EventStream {
    portal: Arc<Portal>,
    member: CurrentMember,
    subscription: ChangeSubscription,
    usage_poll: Interval,
    heartbeat_at: Instant,
    keys: Vec<StoredKey>,
    /// The requests and the status of each key, as of the last poll. Empty before the first one that succeeds.
    last_seen: Vec<(KeyActivity, KeyStatus)>,
    /// The page was rendered before the latest change.
    is_page_stale: bool,
    has_ended: bool,
    _permits: (Permit<i64>, OwnedSemaphorePermit),
}

pub(crate) async fn stream(
    State(portal): State<Arc<Portal>>,
    uri: Uri,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let page_version = uri.query().and_then(|query| query.strip_prefix("version=")).unwrap_or_default().to_owned();
    let account_permit =
        portal.account_stream_permits.try_acquire(member.account.id).ok_or(PortalError::StreamLimitReached)?;
    let permit = Arc::clone(&portal.stream_permits).try_acquire_owned().map_err(|_| PortalError::Busy)?;
    let mut usage_poll = interval(USAGE_POLL_INTERVAL);
    usage_poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut event_stream = EventStream {
        subscription: portal.change_feed.subscribe(member.account.id),
        member,
        usage_poll,
        heartbeat_at: Instant::now(),
        keys: Vec::new(),
        last_seen: Vec::new(),
        is_page_stale: false,
        has_ended: false,
        _permits: (account_permit, permit),
        portal,
    };
    // After subscribing: later changes arrive as events, earlier ones show in the version.
    event_stream.is_page_stale = event_stream.open_keys().await.is_none_or(|version| version != page_version);
    let events = stream::unfold(event_stream, async |mut event_stream| {
        let event = event_stream.next_event().await?;
        Some((Ok::<_, Infallible>(Bytes::from_static(event.as_bytes())), event_stream))
    });
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}

impl EventStream {
    async fn next_event(&mut self) -> Option<&'static str> {
        if std::mem::take(&mut self.is_page_stale) {
            return Some(CHANGED_EVENT);
        }
        while !self.has_ended {
            let is_notified = tokio::select! {
                is_open = self.subscription.wait_for_change() => {
                    if !is_open {
                        return None;
                    }
                    true
                }
                _ = self.usage_poll.tick() => false,
            };
            let is_heartbeat_due = self.heartbeat_at.elapsed() >= HEARTBEAT_INTERVAL;
            if (is_notified || is_heartbeat_due) && self.is_signed_out().await {
                self.has_ended = true;
                return Some(SIGNED_OUT_EVENT);
            }
            if is_notified {
                self.reload_keys().await;
                return Some(CHANGED_EVENT);
            }
            if self.has_new_activity().await {
                return Some(CHANGED_EVENT);
            }
            if is_heartbeat_due {
                return Some(HEARTBEAT);
            }
        }
        None
    }

    /// Loads the list of keys and their requests for the first time, and returns its version.
    async fn open_keys(&mut self) -> Option<String> {
        let rows = self.reload_keys().await?;
        let activities = load_activities(&self.portal.ledger, &rows).await;
        let version = key_list_version(&rows, &activities);
        self.last_seen = self.with_status(activities, time::now_s());
        Some(version)
    }

    /// Reloads the list of keys. While PostgreSQL is unavailable, the list stays as it was.
    async fn reload_keys(&mut self) -> Option<Vec<KeySummary>> {
        let rows = self.portal.store.keys().list(self.member.account.id).await.ok()?;
        self.keys = rows.iter().map(StoredKey::from).collect();
        Some(rows)
    }

    /// Whether a key was used or has another status since the last poll: the burst window ends without a request, and so do the day and
    /// the time of a key. `false` while Redis is unavailable.
    async fn has_new_activity(&mut self) -> bool {
        let now_s = time::now_s();
        let Ok(activities) = KeyActivity::read(&self.portal.ledger, &self.keys, now_s).await else { return false };
        let seen = self.with_status(activities, now_s);
        let is_new = seen != self.last_seen;
        self.last_seen = seen;
        is_new
    }

    fn with_status(&self, activities: Vec<KeyActivity>, now_s: u64) -> Vec<(KeyActivity, KeyStatus)> {
        let status = |(key, activity): (&StoredKey, KeyActivity)| (activity, key.status(activity, now_s));
        self.keys.iter().zip(activities).map(status).collect()
    }

    async fn is_signed_out(&mut self) -> bool {
        self.heartbeat_at = Instant::now();
        let (digest, limits) = (self.member.session_cookie().digest(), self.portal.settings.session_limits);
        matches!(self.portal.store.sessions().authenticate(&digest, limits).await, Ok(None))
    }
}
