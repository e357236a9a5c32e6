//! The usage of keys.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::{StatusCode, Uri};
use ipseity_domain::{KeyId, UtcDay};
use serde_json::{Value, json};

use super::error::{ManageError, json_response};
use super::guard::ActingToken;
use crate::keys::explorer::filter::UsageFilter;
use crate::keys::explorer::report::ReportRow;
use crate::state::Portal;
use crate::time;

/// The last 30 days of all keys, or of the one in the query.
pub(super) async fn show(
    State(portal): State<Arc<Portal>>,
    token: ActingToken,
    uri: Uri,
) -> Result<Response, ManageError> {
    let filter = UsageFilter::last_30_days(key_in_query(&uri)?);
    let mut report = portal.load_usage(token.account.id, filter).await?;
    report.rows.sort_unstable_by_key(|row| (row.at, row.key));
    let body = json!({
        "status": "success",
        "from": time::format_day(UtcDay(report.span.first)),
        "to": time::format_day(UtcDay(report.span.last)),
        "days": report.rows.iter().map(day_json).collect::<Vec<_>>(),
    });
    Ok(json_response(StatusCode::OK, &body))
}

fn key_in_query(uri: &Uri) -> Result<Option<KeyId>, ManageError> {
    let mut pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let Some((_, id)) = pairs.find(|(name, _)| name == "key") else { return Ok(None) };
    KeyId::parse(&id).map(Some).ok_or(ManageError::NotFound)
}

fn day_json(row: &ReportRow) -> Value {
    let [burst, paused, inactive, day, wrong_secret, restricted] = row.count.by_reason;
    json!({
        "day": time::format_day(UtcDay(row.at)),
        "key": row.key.as_str(),
        "admitted": row.count.admitted,
        "rejected": {
            "burst": burst, "paused": paused, "inactive": inactive, "day": day,
            "wrong_secret": wrong_secret, "restricted": restricted,
        },
    })
}
