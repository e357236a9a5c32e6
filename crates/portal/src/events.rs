//! Server-sent events: an open page hears at once that something on it may have changed, and fetches itself again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::{KeyId, Used};
use futures_util::stream;
use http::Uri;
use http::header::CONTENT_TYPE;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::Portal;
use crate::hub::Ear;
use crate::keys::edition;
use crate::page::Member;
use crate::problem::Problem;

/// How often today's use is looked at.
const USE_INTERVAL: Duration = Duration::from_secs(2);
/// How often a page is told that the stream lives, and its session looked at again.
const BEAT_INTERVAL: Duration = Duration::from_secs(15);

const CHANGED: &str = "event: changed\ndata:\n\n";
const GONE: &str = "event: gone\ndata:\n\n";
const BEAT: &str = ": alive\n\n";

struct Watcher {
    portal: Arc<Portal>,
    member: Member,
    ear: Ear,
    looks: Interval,
    beaten_at: Instant,
    keys: Vec<KeyId>,
    used: Vec<Option<Used>>,
    /// The page was made before something changed.
    is_behind: bool,
    has_ended: bool,
    _permit: OwnedSemaphorePermit,
}

pub(crate) async fn stream(State(portal): State<Arc<Portal>>, uri: Uri, member: Member) -> Result<Response, Problem> {
    let seen = uri.query().and_then(|query| query.strip_prefix("seen=")).unwrap_or_default().to_owned();
    let permit = Arc::clone(&portal.streams).try_acquire_owned().map_err(|_| Problem::Busy)?;
    let mut looks = interval(USE_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut watcher = Watcher {
        ear: portal.hub.ear(member.account.id),
        member,
        looks,
        beaten_at: Instant::now(),
        keys: Vec::new(),
        used: Vec::new(),
        is_behind: false,
        has_ended: false,
        _permit: permit,
        portal,
    };
    // After the ear is open: what changes from here on is heard, and what changed before shows in the edition.
    watcher.is_behind = watcher.read_keys().await.is_none_or(|edition| edition != seen);
    watcher.used = watcher.portal.ledger.used(&watcher.keys).await.unwrap_or_default();
    let events = stream::unfold(watcher, async |mut watcher| {
        let event = watcher.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from_static(event.as_bytes())), watcher))
    });
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
}

impl Watcher {
    async fn next(&mut self) -> Option<&'static str> {
        if std::mem::take(&mut self.is_behind) {
            return Some(CHANGED);
        }
        while !self.has_ended {
            let is_told = tokio::select! {
                goes_on = self.ear.hear() => {
                    if !goes_on {
                        return None;
                    }
                    true
                }
                _ = self.looks.tick() => false,
            };
            let is_due = self.beaten_at.elapsed() >= BEAT_INTERVAL;
            if (is_told || is_due) && self.is_signed_out().await {
                self.has_ended = true;
                return Some(GONE);
            }
            if is_told {
                self.read_keys().await;
                return Some(CHANGED);
            }
            if self.is_used().await {
                return Some(CHANGED);
            }
            if is_due {
                return Some(BEAT);
            }
        }
        None
    }

    /// Reads which keys there are, and the edition that they make; while PostgreSQL is away they are the ones from before.
    async fn read_keys(&mut self) -> Option<String> {
        let rows = self.portal.store.keys(self.member.account.id).await.ok()?;
        self.keys = rows.iter().map(|row| row.id).collect();
        Some(edition(&rows))
    }

    /// Whether a key was used since the last look. A counter store that is away changes nothing.
    async fn is_used(&mut self) -> bool {
        match self.portal.ledger.used(&self.keys).await {
            Ok(used) if used != self.used => {
                self.used = used;
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    async fn is_signed_out(&mut self) -> bool {
        self.beaten_at = Instant::now();
        matches!(self.portal.find_member(self.member.visit()).await, Ok(None))
    }
}
