//! Rate-limit headers, in both dialects: X-RateLimit-* and the IETF's RateLimit fields
//! (draft-ietf-httpapi-ratelimit-headers).

use domain::{BURST_MAX, BURST_WINDOW_S, DAY_S};
use http::{HeaderMap, HeaderName, header};
use ledger::{Charged, Moment};

use crate::header_text::HeaderText;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// What an answer says about a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    policy: Policy,
    limit: u64,
    remaining: u64,
    reset_s: u64,
    until_reset_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Day,
    Burst,
}

impl Limits {
    pub(crate) fn of_day(charged: &Charged) -> Self {
        Self {
            policy: Policy::Day,
            limit: charged.limit,
            remaining: charged.remaining(),
            reset_s: charged.reset_s(),
            until_reset_s: charged.retry_after_s(),
        }
    }

    pub(crate) fn of_burst(now: Moment) -> Self {
        Self {
            policy: Policy::Burst,
            limit: BURST_MAX as u64,
            remaining: 0,
            reset_s: now.s() + BURST_WINDOW_S,
            until_reset_s: BURST_WINDOW_S,
        }
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let (name, window_s) = match self.policy {
            Policy::Day => ("day", DAY_S),
            Policy::Burst => ("burst", BURST_WINDOW_S),
        };
        headers.insert(X_RATELIMIT_LIMIT, self.limit.into());
        headers.insert(X_RATELIMIT_REMAINING, self.remaining.into());
        headers.insert(X_RATELIMIT_RESET, self.reset_s.into());
        let named = || HeaderText::new().text("\"").text(name);
        named().text("\";q=").number(self.limit).text(";w=").number(window_s).insert(headers, RATELIMIT_POLICY);
        named().text("\";r=").number(self.remaining).text(";t=").number(self.until_reset_s).insert(headers, RATELIMIT);
    }

    /// The headers of a refusal: those of the limit, and when to come back.
    pub(crate) fn write_refused(&self, headers: &mut HeaderMap) {
        self.write(headers);
        headers.insert(header::RETRY_AFTER, self.until_reset_s.into());
    }
}
