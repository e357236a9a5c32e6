//! Rate limit headers in two formats: `X-RateLimit-*` and the IETF's `RateLimit` fields
//! (draft-ietf-httpapi-ratelimit-headers).

use http::{HeaderMap, HeaderName, header};
use ipseity_domain::{BURST_WINDOW_S, DAY_S};
use ipseity_ledger::{LedgerTime, Quota};

use crate::pairing::pair_throttle::{PairLimit, WINDOW_S};
use crate::response::header_value::{HeaderValueBuilder, volatile};

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The period of the limits on uncharged requests.
pub(crate) const LIMITER_PERIOD_S: u64 = 60;

/// The values of the rate limit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateLimitHeaders {
    policy: RateLimitPolicy,
    limit: u64,
    remaining: u64,
    reset_s: u64,
    until_reset_s: u64,
    /// The burst limit, in addition to the daily one.
    burst: Option<BurstUse>,
}

/// The burst limit of a key, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BurstUse {
    pub(crate) limit: usize,
    /// `None` if the client must not know.
    pub(crate) left: Option<BurstLeft>,
}

/// What is left of a burst limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BurstLeft {
    pub(crate) requests: u64,
    /// Seconds until another request is left.
    pub(crate) until_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateLimitPolicy {
    Day,
    Burst,
    Caller,
    KeyStatus,
    Tickets,
    Pair,
}

impl RateLimitHeaders {
    pub(crate) fn daily(quota: &Quota) -> Self {
        Self {
            policy: RateLimitPolicy::Day,
            limit: quota.limit,
            remaining: quota.remaining(),
            reset_s: quota.reset_s(),
            until_reset_s: quota.retry_after_s(),
            burst: None,
        }
    }

    pub(crate) fn burst(now: LedgerTime, limit: usize) -> Self {
        Self {
            policy: RateLimitPolicy::Burst,
            limit: limit as u64,
            remaining: 0,
            reset_s: now.as_secs() + BURST_WINDOW_S,
            until_reset_s: BURST_WINDOW_S,
            burst: None,
        }
    }

    /// The limit per caller, which applies to the same window as the burst limit.
    pub(crate) const fn caller(now: LedgerTime, limit: u64, retry_after_s: u64) -> Self {
        Self::reached(RateLimitPolicy::Caller, now, limit, retry_after_s)
    }

    /// The limit of requests for the status of a key.
    pub(crate) const fn key_status(now: LedgerTime, limit: u64, retry_after_s: u64) -> Self {
        Self::reached(RateLimitPolicy::KeyStatus, now, limit, retry_after_s)
    }

    /// The limit of tickets that a key creates.
    pub(crate) const fn tickets(now: LedgerTime, limit: u64, retry_after_s: u64) -> Self {
        Self::reached(RateLimitPolicy::Tickets, now, limit, retry_after_s)
    }

    const fn reached(policy: RateLimitPolicy, now: LedgerTime, limit: u64, retry_after_s: u64) -> Self {
        Self {
            policy,
            limit,
            remaining: 0,
            reset_s: now.as_secs() + retry_after_s,
            until_reset_s: retry_after_s,
            burst: None,
        }
    }

    pub(crate) fn pair(limit: PairLimit) -> Self {
        Self {
            policy: RateLimitPolicy::Pair,
            limit: limit.limit.into(),
            remaining: 0,
            reset_s: limit.now_s + limit.retry_after_s,
            until_reset_s: limit.retry_after_s,
            burst: None,
        }
    }

    /// Adds the burst limit to the daily one.
    pub(crate) const fn with_burst(self, burst: Option<BurstUse>) -> Self {
        Self { burst, ..self }
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let (name, window_s) = match self.policy {
            RateLimitPolicy::Day => ("day", DAY_S),
            RateLimitPolicy::Burst => ("burst", BURST_WINDOW_S),
            RateLimitPolicy::Caller => ("caller", BURST_WINDOW_S),
            RateLimitPolicy::KeyStatus => ("key-status", LIMITER_PERIOD_S),
            RateLimitPolicy::Tickets => ("tickets", LIMITER_PERIOD_S),
            RateLimitPolicy::Pair => ("pair", WINDOW_S),
        };
        headers.insert(X_RATELIMIT_LIMIT, self.limit.into());
        headers.insert(X_RATELIMIT_REMAINING, volatile(self.remaining.into()));
        headers.insert(X_RATELIMIT_RESET, self.reset_s.into());
        let (mut policy, mut left) = (HeaderValueBuilder::new(), HeaderValueBuilder::new());
        policy.push_str("\"").push_str(name).push_str("\";q=").push_u64(self.limit).push_str(";w=").push_u64(window_s);
        left.push_str("\"").push_str(name).push_str("\";r=").push_u64(self.remaining);
        left.push_str(";t=").push_u64(self.until_reset_s);
        if let Some(burst) = self.burst {
            policy.push_str(", \"burst\";q=").push_u64(burst.limit as u64).push_str(";w=").push_u64(BURST_WINDOW_S);
            if let Some(BurstLeft { requests, until_s }) = burst.left {
                left.push_str(", \"burst\";r=").push_u64(requests).push_str(";t=").push_u64(until_s);
            }
        }
        policy.insert_into(headers, RATELIMIT_POLICY);
        left.insert_volatile(headers, RATELIMIT);
    }

    /// Writes the headers of a refusal: the limit and `Retry-After`.
    pub(crate) fn write_with_retry_after(&self, headers: &mut HeaderMap) {
        self.write(headers);
        headers.insert(header::RETRY_AFTER, self.until_reset_s.into());
    }
}
