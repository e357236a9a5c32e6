//! The body of the response.

use std::sync::Arc;

use ipseity_domain::plan::FREE_DAILY_LIMIT;
use ipseity_domain::restrictions::origin::AllowedOrigin;
use ipseity_domain::{BURST_LIMIT, KeyFlags, KeyState, KeyStatus, LimitLevel, Restrictions, Scope};
use ipseity_ledger::{KeyCounts, KeySnapshot, LedgerTime};
use jiff::Timestamp;
use serde::Serialize;

use crate::key_status::reader::RestrictedStatus;

/// The state of a key that has expired. It is neither deactivated nor paused.
pub(crate) const EXPIRED: &str = KeyStatus::Expired.name();

#[derive(Serialize)]
pub(crate) struct KeyStatusBody {
    status: &'static str,
    scope: &'static str,
    state: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    details: Option<DetailsBody>,
}

/// What only the owner's programs get.
#[derive(Serialize)]
struct DetailsBody {
    /// With the words of the portal. It shows how much is used, which the state does not.
    key_status: &'static str,
    limits: LimitsBody,
    usage: UsageBody,
    expires_at: Option<String>,
    restrictions: RestrictionsBody,
}

#[derive(Serialize)]
struct LimitsBody {
    day: u64,
    burst: u64,
}

#[derive(Serialize)]
struct UsageBody {
    day: Option<u64>,
    burst: Option<u64>,
}

#[derive(Serialize)]
struct RestrictionsBody {
    origins: Vec<String>,
    networks: Vec<String>,
    caller_limit: Option<u32>,
    tickets_only: bool,
}

impl KeyStatusBody {
    /// The body without details is for a page in a browser, and for callers that the restrictions of the key reject. The first
    /// includes every key with allowed origins. They would show a stranger how many requests pause the key.
    pub(crate) fn new(status: &RestrictedStatus, without_details: bool, now: LedgerTime) -> Self {
        let RestrictedStatus { status: KeySnapshot { scope, flags, daily_limit, burst_limit, counts, .. }, versioned } =
            status;
        let Restrictions { origins, networks, expires_at_s, caller_limit, tickets_only, .. } = &versioned.restrictions;
        let is_expired = expires_at_s.is_some_and(|at_s| now.as_secs() >= at_s);
        let state = match flags.state() {
            KeyState::Active if is_expired => EXPIRED,
            state @ (KeyState::Active | KeyState::Paused | KeyState::Inactive) => state.name(),
        };
        let level = |count: Option<u64>, limit| count.map_or(LimitLevel::Normal, |count| LimitLevel::of(count, limit));
        let day = level(counts.map(|counts| counts.day), *daily_limit);
        let burst = level(counts.map(|counts| counts.burst), *burst_limit as u64);
        let details = (!without_details && origins.is_empty()).then(|| DetailsBody {
            key_status: KeyStatus::of(flags.state(), is_expired, day, burst).name(),
            limits: LimitsBody { day: *daily_limit, burst: *burst_limit as u64 },
            usage: UsageBody { day: counts.map(|counts| counts.day), burst: counts.map(|counts| counts.burst) },
            expires_at: expires_at_s
                .and_then(|at_s| Timestamp::from_second(at_s.cast_signed()).ok())
                .map(|at| at.to_string()),
            restrictions: RestrictionsBody {
                origins: origins.iter().map(AllowedOrigin::as_str).map(str::to_owned).collect(),
                networks: networks.iter().map(ToString::to_string).collect(),
                caller_limit: *caller_limit,
                tickets_only: *tickets_only,
            },
        });
        Self { status: "success", scope: scope.name(), state, details }
    }
}

/// The status of a test key, and of the example in the OpenAPI document.
pub(crate) fn sample_status(scope: Scope) -> RestrictedStatus {
    let (flags, counts) = (KeyFlags::default(), Some(KeyCounts { day: 1, burst: 1 }));
    let (daily_limit, burst_limit) = (FREE_DAILY_LIMIT, BURST_LIMIT);
    let status = KeySnapshot { scope, flags, daily_limit, burst_limit, restriction_version: 0, counts };
    RestrictedStatus { status, versioned: Arc::default() }
}
