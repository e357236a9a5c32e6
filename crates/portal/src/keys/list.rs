//! The list of keys.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_domain::{DAY_S, KeyId, KeyState, UtcDay, causes};
use ipseity_ledger::Ledger;
use ipseity_store::{KeySummary, PauseEvidence};
use sha2::{Digest, Sha256};

use crate::error::PortalError;
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::chart::pause_chart;
use crate::view::frame::Tab;
use crate::view::key_badge::KeyBadge;
use crate::view::keys::{KeyCard, KeysPage, PauseView, QuotaReset};

pub(crate) async fn list(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    let rows = portal.store.keys().list(member.account.id).await?;
    let used = portal.key_usage_today(&rows).await;
    let keys = rows.iter().zip(used).map(|(row, used)| key_card(row, used)).collect();
    Ok(render_page(&KeysPage {
        frame: member.frame(&portal, "Your keys", Tab::Keys),
        keys,
        keys_max: member.account.keys_max,
        version: key_list_version(&rows),
    }))
}

/// Version of what the list shows, without usage, which changes all the time.
pub(crate) fn key_list_version(rows: &[KeySummary]) -> String {
    let mut digest = Sha256::new();
    for row in rows {
        let paused_ms = row.pause.as_ref().map(|pause| pause.paused_at_ms);
        let shown = (key_badge(row, 0), row.restrictions.restricts(), row.daily_limit);
        digest.update(format!("{:?}", (row.id, &row.name, shown, row.previous_until_s, paused_ms)));
    }
    hex::encode(&digest.finalize()[..8])
}

/// The badge of a key with the given usage of today. If several apply, it is the one of the API's error.
pub(crate) fn key_badge(row: &KeySummary, used_today: u64) -> KeyBadge {
    match row.state {
        KeyState::Inactive => KeyBadge::Deactivated,
        KeyState::Paused => KeyBadge::Paused,
        KeyState::Active if is_expired(row) => KeyBadge::Expired,
        KeyState::Active => KeyBadge::of_usage(used_today, row.daily_limit),
    }
}

fn is_expired(row: &KeySummary) -> bool {
    row.restrictions.expires_at_s.is_some_and(|expires_at_s| expires_at_s <= time::now_s())
}

fn expiry(row: &KeySummary) -> Option<String> {
    let expires_at_s = i64::try_from(row.restrictions.expires_at_s?).unwrap_or(i64::MAX);
    let verb = if is_expired(row) { "Expired" } else { "Expires" };
    Some(format!("{verb} {}", time::format_minute(expires_at_s)))
}

fn quota_reset() -> QuotaReset {
    let tomorrow = time::today().0.saturating_add(1);
    let remaining_s = (u64::from(tomorrow) * DAY_S).saturating_sub(time::now_s());
    QuotaReset {
        at: format!("{}T00:00Z", time::format_day(UtcDay(tomorrow))),
        remaining: time::format_remaining(remaining_s),
    }
}

/// A key for display.
pub(crate) fn key_card(row: &KeySummary, used_today: u64) -> KeyCard {
    let last_used = if used_today > 0 {
        Some("today".to_owned())
    } else {
        row.last_used.as_ref().map(|(day, _)| time::format_recent_day(day, time::today()))
    };
    KeyCard {
        id: row.id.to_string(),
        name: row.name.clone(),
        scope: row.scope.name(),
        badge: key_badge(row, used_today),
        is_restricted: row.restrictions.restricts(),
        expiry: expiry(row),
        created: time::format_date(row.created_s),
        last_used,
        used_today,
        daily_limit: row.daily_limit,
        reset: quota_reset(),
        previous_valid_until: row.previous_until_s.map(time::format_minute),
        burst_limit: row.burst_limit,
        pause: row.pause.as_ref().map(pause_view),
    }
}

/// A pause for display.
pub(super) fn pause_view(pause: &PauseEvidence) -> PauseView {
    PauseView {
        paused_at: time::format_second(pause.paused_at_ms / 1000),
        requests: pause.counts.iter().map(|count| u32::from(*count)).sum(),
        peak_per_second: pause.counts.iter().copied().max().unwrap_or(0),
        chart: pause_chart(&pause.counts),
    }
}

impl Portal {
    pub(crate) async fn key_usage_today(&self, rows: &[KeySummary]) -> Vec<u64> {
        key_usage_today(&self.ledger, rows).await
    }
}

/// Today's usage of each key, from Redis; from the last usage flush if Redis is unavailable.
pub(crate) async fn key_usage_today(ledger: &Ledger, rows: &[KeySummary]) -> Vec<u64> {
    let today = time::today();
    let ids: Vec<KeyId> = rows.iter().map(|row| row.id).collect();
    let live = ledger.usage_of(&ids).await.unwrap_or_else(|error| {
        tracing::warn!(error = %causes(&error), "live usage unavailable; showing the last flush");
        vec![None; ids.len()]
    });
    let if_today = |day: UtcDay, highest_count| if day == today { highest_count } else { 0 };
    let highest_count = |(row, live): (&KeySummary, Option<ipseity_domain::DailyUsage>)| {
        row.used_today.max(live.map_or(0, |used| if_today(used.day, used.count)))
    };
    rows.iter().zip(live).map(highest_count).collect()
}
