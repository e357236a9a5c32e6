//! Keys and pauses as JSON.

use ipseity_keys::{CommittedChange, KeyActivity};
use ipseity_store::{KeySummary, PauseEvidence, RecordedPause};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::restrictions::RestrictionsBody;
use crate::keys::list::key_status;
use crate::time;

/// A key with its status.
pub(super) fn key_json(row: &KeySummary, activity: KeyActivity) -> Value {
    let last_used_on = if activity.used_today > 0 {
        Some(time::format_day(time::today()))
    } else {
        row.last_used.as_ref().map(|(day, _)| day.clone())
    };
    json!({
        "id": row.id.as_str(),
        "name": row.name,
        "scope": row.scope.name(),
        "state": row.state.name(),
        "key_status": key_status(row, activity).name(),
        "limits": { "day": row.daily_limit, "burst": row.burst_limit },
        "used_today": activity.used_today,
        "last_used_on": last_used_on,
        "created_at": time::format_rfc3339(row.created_s),
        "previous_secret_until": row.previous_until_s.map(time::format_rfc3339),
        "restrictions": RestrictionsBody::from(&row.restrictions),
        "pause": row.pause.as_ref().map(evidence_json),
    })
}

/// What a key did in the 60 seconds before its pause.
fn evidence_json(evidence: &PauseEvidence) -> Value {
    json!({
        "paused_at": Timestamp::from_millisecond(evidence.paused_at_ms).map_or_else(|_| String::new(), |at| at.to_string()),
        "requests": evidence.counts.iter().map(|count| u32::from(*count)).sum::<u32>(),
        "requests_per_second": evidence.counts,
    })
}

/// A pause, also of a key that was resumed.
pub(super) fn pause_json(pause: &RecordedPause) -> Value {
    let mut body = evidence_json(&pause.evidence);
    body["epoch"] = pause.burst_epoch.into();
    body["is_current"] = pause.is_current.into();
    body["resumed_at"] = pause.resumed.as_ref().map(|(at_s, _)| time::format_rfc3339(*at_s)).into();
    body["resumed_by"] = pause.resumed.as_ref().map(|(_, actor)| actor.as_str()).into();
    body
}

/// The response to a change. `applied` is false if Redis is unavailable: requests see the change as soon as it is back.
pub(super) fn change_json(committed: &CommittedChange) -> Value {
    json!({ "status": "success", "applied": committed.publish_error.is_none() })
}
