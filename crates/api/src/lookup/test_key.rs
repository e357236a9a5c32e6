//! Requests with a test key: made-up data, or the error that the request asks for.
//!
//! They use no store and count toward no limit and no usage. The metric `api_requests` does not count them either, because
//! an error that a test asks for must not cause an alert.

use std::borrow::Cow;

use axum::response::Response;
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use ipseity_domain::plan::FREE_DAILY_LIMIT;
use ipseity_domain::{BURST_LIMIT, BURST_WINDOW_S, FailedAttempt, FieldSet, Scope, test_key_scope};
use ipseity_ledger::{LedgerTime, Quota};

use crate::admission::credentials;
use crate::error::Refusal;
use crate::lookup::renderer::sample_caller::{HOME, SampleCaller};
use crate::lookup::test_failure::TestFailure;
use crate::operation::{EXAMPLE_CALLER_LIMIT, EXAMPLE_CALLER_RETRY_AFTER_S};
use crate::response::json_response;
use crate::response::rate_limit_headers::{BurstLeft, BurstUse, RateLimitHeaders};
use crate::state::Api;
use crate::wall_clock::wall_clock;

/// Marks every response to a test key, so that its data is not taken for real.
const IPSEITY_TEST: HeaderName = HeaderName::from_static("ipseity-test");

/// The scope of a request with a test key or test ticket. `None` if it has neither, or if this service does not accept them.
pub(crate) fn find_test_scope(api: &Api, credential: &Result<Cow<'_, str>, Refusal>) -> Option<Scope> {
    test_key_scope(credential.as_ref().ok()?).filter(|_| api.accept_test_keys)
}

/// The response to a request with a test key.
pub(crate) fn test_response(
    api: &Api,
    needs_https: bool,
    respond: impl FnOnce() -> Result<Response, Refusal>,
) -> Response {
    let result = if needs_https { Err(Refusal::HttpsRequired) } else { respond() };
    let mut response = result.unwrap_or_else(|refusal| api.error_bodies.response(refusal));
    // A 401 that a test asks for is no attempt to guess a key.
    response.extensions_mut().remove::<FailedAttempt>();
    response.headers_mut().insert(IPSEITY_TEST, HeaderValue::from_static("true"));
    response
}

/// Whether a response is one to a test key.
pub(crate) fn is_test_response(response: &Response) -> bool {
    response.headers().contains_key(IPSEITY_TEST)
}

/// The response to a lookup with a test key of this scope. Nothing in it depends on the caller.
pub(super) fn sample_response(scope: Scope, parts: &Parts) -> Result<Response, Refusal> {
    let caller = match credentials::query_param(parts, "as") {
        Some(name) => SampleCaller::find(&name).ok_or(Refusal::UnknownTestCaller)?,
        None => &HOME,
    };
    let now = wall_clock();
    if let Some(name) = credentials::query_param(parts, "fail") {
        return Err(TestFailure::parse(&name).map_or(Refusal::UnknownTestFailure, |failure| refusal_of(failure, now)));
    }
    let requested_scope = credentials::query_param(parts, "scope");
    let field_set = FieldSet::Scope(scope.narrowed_to(requested_scope.as_deref()));
    let mut response = json_response(caller.body(field_set));
    let (limit, burst_limit) = (FREE_DAILY_LIMIT, BURST_LIMIT);
    let quota = Quota { now, limit, day: now.day(), used: 1, burst_limit };
    let left = BurstLeft { requests: BURST_LIMIT as u64 - 1, until_s: BURST_WINDOW_S };
    let burst = BurstUse { limit: BURST_LIMIT, left: Some(left) };
    RateLimitHeaders::daily(&quota).with_burst(Some(burst)).write(response.headers_mut());
    Ok(response)
}

/// The error of a real key in the same case.
const fn refusal_of(failure: TestFailure, now: LedgerTime) -> Refusal {
    match failure {
        TestFailure::Burst => Refusal::BurstExceeded { now, limit: BURST_LIMIT },
        TestFailure::Paused => Refusal::Paused { limit: BURST_LIMIT },
        TestFailure::Day => {
            let (limit, burst_limit) = (FREE_DAILY_LIMIT, BURST_LIMIT);
            Refusal::QuotaExhausted(Quota { now, limit, day: now.day(), used: limit, burst_limit })
        }
        TestFailure::Inactive => Refusal::Inactive,
        TestFailure::Expired => Refusal::Expired,
        TestFailure::Origin => Refusal::OriginNotAllowed,
        TestFailure::Caller => {
            Refusal::CallerLimited { now, limit: EXAMPLE_CALLER_LIMIT, retry_after_s: EXAMPLE_CALLER_RETRY_AFTER_S }
        }
        TestFailure::Ticket => Refusal::InvalidTicket,
        TestFailure::Internal => Refusal::Internal,
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::test_key;

    use super::*;
    use crate::lookup::renderer::sample_caller::SAMPLE_CALLERS;

    #[test]
    fn documentation_lists_every_test_key_caller_and_error() {
        let documentation = include_str!("../../../../docs/site/test-keys.md");
        for scope in Scope::ALL {
            assert!(documentation.contains(&format!("| `{scope}` | `{}` |", test_key(scope))), "{scope}");
        }
        for caller in &SAMPLE_CALLERS {
            assert!(documentation.contains(&format!("\n| `{}`", caller.name)), "{}", caller.name);
        }
        for failure in TestFailure::ALL {
            let refusal = refusal_of(failure, LedgerTime(0));
            let (status, code, anchor) = (refusal.status().as_u16(), refusal.code(), refusal.anchor());
            let row = format!("\n| `{}` | [{status} {code}](errors.md#{anchor})", failure.name());
            assert!(documentation.contains(&row), "{row}");
        }
    }
}
