//! The list of keys.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_domain::{DAY_S, KeyStatus, UtcDay};
use ipseity_keys::{KeyActivity, StoredKey, has_expired};
use ipseity_ledger::Ledger;
use ipseity_store::{EXPIRY_ALERT_DAYS, KeySummary, PauseEvidence};
use sha2::{Digest, Sha256};

use crate::error::PortalError;
use crate::keys::recent_days::RecentDays;
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::chart::pause_chart;
use crate::view::frame::Tab;
use crate::view::keys::{KeyCard, KeysPage, PauseView, QuotaReset};

pub(crate) async fn list(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    let rows = portal.store.keys().list(member.account.id).await?;
    let activities = load_activities(&portal.ledger, &rows).await;
    let recent_days = RecentDays::load(&portal, member.account.id).await?;
    let card = |(row, activity): (&KeySummary, &KeyActivity)| KeyCard {
        recent_days: recent_days.of_key(row.id, activity.used_today),
        ..key_card(row, *activity)
    };
    let keys = rows.iter().zip(&activities).map(card).collect();
    Ok(render_page(&KeysPage {
        frame: member.frame(&portal, "Your keys", Tab::Keys),
        keys,
        keys_max: member.account.keys_max,
        version: key_list_version(&rows, &activities),
    }))
}

/// Version of what a page shows of the keys. A page with another version reads them again when its live updates start.
pub(crate) fn key_list_version(rows: &[KeySummary], activities: &[KeyActivity]) -> String {
    let mut digest = Sha256::new();
    for (row, activity) in rows.iter().zip(activities) {
        let paused_ms = row.pause.as_ref().map(|pause| pause.paused_at_ms);
        let shown = (
            key_status(row, *activity),
            expires_soon(row),
            row.restrictions.restricts(),
            row.daily_limit,
            activity.used_today,
        );
        digest.update(format!("{:?}", (row.id, &row.name, shown, row.previous_until_s, paused_ms)));
    }
    hex::encode(&digest.finalize()[..8])
}

/// The status of a key with these requests.
pub(crate) fn key_status(row: &KeySummary, activity: KeyActivity) -> KeyStatus {
    StoredKey::from(row).status(activity, time::now_s())
}

/// Whether a key has not expired yet, but does so soon. Its owner gets an alert at the same time.
fn expires_soon(row: &KeySummary) -> bool {
    let soon_s = time::now_s() + u64::from(EXPIRY_ALERT_DAYS.unsigned_abs()) * DAY_S;
    row.restrictions.expires_at_s.is_some_and(|expires_at_s| expires_at_s <= soon_s) && !is_expired(row)
}

fn is_expired(row: &KeySummary) -> bool {
    has_expired(row, time::now_s())
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
pub(crate) fn key_card(row: &KeySummary, activity: KeyActivity) -> KeyCard {
    let used_today = activity.used_today;
    let last_used = if used_today > 0 {
        Some("today".to_owned())
    } else {
        row.last_used.as_ref().map(|(day, _)| time::format_recent_day(day, time::today()))
    };
    KeyCard {
        id: row.id.to_string(),
        name: row.name.clone(),
        scope: row.scope.name(),
        status: key_status(row, activity),
        expires_soon: expires_soon(row),
        is_restricted: row.restrictions.restricts(),
        expiry: expiry(row),
        created: time::format_date(row.created_s),
        last_used,
        used_today,
        recent_days: Vec::new(),
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

/// The requests of keys, in the order of `rows`.
pub(crate) async fn load_activities(ledger: &Ledger, rows: &[KeySummary]) -> Vec<KeyActivity> {
    let keys: Vec<StoredKey> = rows.iter().map(StoredKey::from).collect();
    KeyActivity::read_or_last_flush(ledger, &keys, time::now_s()).await
}

/// The requests of one key.
pub(crate) async fn load_activity(ledger: &Ledger, row: &KeySummary) -> KeyActivity {
    load_activities(ledger, std::slice::from_ref(row)).await.pop().unwrap_or_default()
}
