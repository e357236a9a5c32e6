//! Rate limit headers in two formats: `X-RateLimit-*` and the IETF's `RateLimit` fields
//! (draft-ietf-httpapi-ratelimit-headers).

use http::{HeaderMap, HeaderName, header};
use ipseity_domain::{BURST_LIMIT, BURST_WINDOW_S, DAY_S};
use ipseity_ledger::{LedgerTime, Quota};

use crate::response::header_value::HeaderValueBuilder;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The values of the rate limit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimitHeaders {
    policy: RateLimitPolicy,
    limit: u64,
    remaining: u64,
    reset_s: u64,
    until_reset_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateLimitPolicy {
    Day,
    Burst,
}

impl RateLimitHeaders {
    pub(crate) fn daily(quota: &Quota) -> Self {
        Self {
            policy: RateLimitPolicy::Day,
            limit: quota.limit,
            remaining: quota.remaining(),
            reset_s: quota.reset_s(),
            until_reset_s: quota.retry_after_s(),
        }
    }

    pub(crate) fn burst(now: LedgerTime) -> Self {
        Self {
            policy: RateLimitPolicy::Burst,
            limit: BURST_LIMIT as u64,
            remaining: 0,
            reset_s: now.as_secs() + BURST_WINDOW_S,
            until_reset_s: BURST_WINDOW_S,
        }
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let (name, window_s) = match self.policy {
            RateLimitPolicy::Day => ("day", DAY_S),
            RateLimitPolicy::Burst => ("burst", BURST_WINDOW_S),
        };
        headers.insert(X_RATELIMIT_LIMIT, self.limit.into());
        headers.insert(X_RATELIMIT_REMAINING, self.remaining.into());
        headers.insert(X_RATELIMIT_RESET, self.reset_s.into());
        let quoted_name = || HeaderValueBuilder::new().push_str("\"").push_str(name);
        quoted_name()
            .push_str("\";q=")
            .push_u64(self.limit)
            .push_str(";w=")
            .push_u64(window_s)
            .insert_into(headers, RATELIMIT_POLICY);
        quoted_name()
            .push_str("\";r=")
            .push_u64(self.remaining)
            .push_str(";t=")
            .push_u64(self.until_reset_s)
            .insert_into(headers, RATELIMIT);
    }

    /// Writes the headers of a refusal: the limit and `Retry-After`.
    pub(crate) fn write_with_retry_after(&self, headers: &mut HeaderMap) {
        self.write(headers);
        headers.insert(header::RETRY_AFTER, self.until_reset_s.into());
    }
}
