//! The responses to refused requests.

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, header};
use ipseity_domain::{BURST_LIMIT, FailedAttempt};

use super::Refusal;
use crate::public_urls::PublicUrls;
use crate::response::rate_limit_headers::{BurstUse, RateLimitHeaders};
use crate::response::{json_line, json_response};

/// Renders refusals. Bodies that never change are rendered once at startup.
pub(crate) struct ErrorBodies {
    public_urls: PublicUrls,
    prerendered: [(Refusal, Bytes); 10],
}

impl ErrorBodies {
    pub(crate) fn new(public_urls: PublicUrls) -> Self {
        let constant_refusals = [
            Refusal::MissingKey,
            Refusal::InvalidKey,
            Refusal::Inactive,
            Refusal::Paused { limit: BURST_LIMIT },
            Refusal::Expired,
            Refusal::OriginNotAllowed,
            Refusal::NetworkNotAllowed,
            Refusal::TicketRequired,
            Refusal::InvalidTicket,
            Refusal::NetworkBlocked,
        ];
        Self {
            prerendered: constant_refusals.map(|refusal| (refusal, render_error_body(refusal, &public_urls))),
            public_urls,
        }
    }

    pub(crate) fn body(&self, refusal: Refusal) -> Bytes {
        let prerendered = self.prerendered.iter().find(|(prerendered, _)| *prerendered == refusal);
        prerendered.map_or_else(|| render_error_body(refusal, &self.public_urls), |(_, body)| body.clone())
    }

    /// Builds the response to a refused request.
    pub(crate) fn response(&self, refusal: Refusal) -> Response {
        let mut response = json_response(self.body(refusal));
        *response.status_mut() = refusal.status();
        let headers = response.headers_mut();
        match refusal {
            Refusal::MissingKey
            | Refusal::MissingScheme
            | Refusal::MissingHeaderKey
            | Refusal::InvalidKey
            | Refusal::InvalidTicket => {
                // Required by RFC 9110, section 15.5.2.
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response.extensions_mut().insert(FailedAttempt);
            }
            Refusal::BurstExceeded { now, limit } => {
                RateLimitHeaders::burst(now, limit).write_with_retry_after(headers)
            }
            Refusal::QuotaExhausted(quota) => {
                // Such a request counts toward the burst limit too.
                let burst = BurstUse { limit: quota.burst_limit, left: None };
                RateLimitHeaders::daily(&quota).with_burst(Some(burst)).write_with_retry_after(headers);
            }
            Refusal::DemoExhausted(quota) | Refusal::DemoShareUsed(quota) => {
                RateLimitHeaders::daily(&quota).write_with_retry_after(headers)
            }
            Refusal::CallerLimited { now, limit, retry_after_s } => {
                RateLimitHeaders::caller(now, limit, retry_after_s).write_with_retry_after(headers);
            }
            Refusal::StatusLimited { now, limit, retry_after_s } => {
                RateLimitHeaders::key_status(now, limit, retry_after_s).write_with_retry_after(headers);
            }
            Refusal::TicketLimited { now, limit, retry_after_s } => {
                RateLimitHeaders::tickets(now, limit, retry_after_s).write_with_retry_after(headers);
            }
            Refusal::PairLimit(limit) => RateLimitHeaders::pair(limit).write_with_retry_after(headers),
            // The router adds the Allow header.
            Refusal::MethodNotAllowed => {}
            Refusal::HttpsRequired
            | Refusal::Inactive
            | Refusal::Paused { .. }
            | Refusal::Expired
            | Refusal::OriginNotAllowed
            | Refusal::NetworkNotAllowed
            | Refusal::TicketRequired
            | Refusal::TicketForPage
            | Refusal::InvalidTicketOption(_)
            | Refusal::UnknownTestCaller
            | Refusal::UnknownTestFailure
            | Refusal::NetworkBlocked
            | Refusal::Misdirected
            | Refusal::NotFound
            | Refusal::UriTooLong
            | Refusal::BadRequest(_)
            | Refusal::Internal => {}
        }
        response
    }
}

fn render_error_body(refusal: Refusal, public_urls: &PublicUrls) -> Bytes {
    json_line(&refusal.body(public_urls)).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use ipseity_ledger::LedgerTime;

    use super::*;

    fn example_urls() -> PublicUrls {
        let url = || "https://ip.example.com".to_owned();
        PublicUrls { base: url(), docs: url(), signup: url(), enterprise: url(), dashboard: url() }
    }

    fn response_to(refusal: Refusal) -> (u16, &'static str, &'static str, Response) {
        let response = ErrorBodies::new(example_urls()).response(refusal);
        (response.status().as_u16(), refusal.code(), refusal.anchor(), response)
    }

    #[test]
    fn restrictions_of_a_key_have_their_codes_and_anchors() {
        for (refusal, status, code, anchor) in [
            (Refusal::Expired, 403, "inactive_api_key", "expired-keys"),
            (Refusal::OriginNotAllowed, 403, "origin_not_allowed", "origin_not_allowed"),
            (Refusal::NetworkNotAllowed, 403, "network_not_allowed", "network_not_allowed"),
            (Refusal::TicketRequired, 403, "ticket_required", "ticket_required"),
            (Refusal::InvalidTicket, 401, "invalid_api_key", "tickets"),
        ] {
            let (actual_status, actual_code, actual_anchor, response) = response_to(refusal);
            assert_eq!((actual_status, actual_code, actual_anchor), (status, code, anchor));
            assert_eq!(response.headers().contains_key("www-authenticate"), status == 401, "{code}");
            assert_eq!(response.extensions().get::<FailedAttempt>().is_some(), status == 401, "{code}");
            assert!(!response.headers().contains_key("retry-after"), "{code}");
        }
    }

    #[test]
    fn caller_limit_has_a_separate_limit_and_reset_and_no_link() {
        let refusal = Refusal::CallerLimited { now: LedgerTime(1_000_000), limit: 30, retry_after_s: 7 };
        let (status, code, anchor, response) = response_to(refusal);
        assert_eq!((status, code, anchor), (429, "rate_limit_exceeded", "caller-limit"));
        let header = |name: &str| response.headers()[name].to_str().expect("ASCII").to_owned();
        assert_eq!(["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining"].map(header), ["7", "30", "0"]);
        assert_eq!(header("x-ratelimit-reset"), "1007");
        assert_eq!(header("ratelimit-policy"), "\"caller\";q=30;w=60");
        assert_eq!(header("ratelimit"), "\"caller\";r=0;t=7");
        let body = serde_json::to_value(refusal.body(&example_urls())).expect("valid JSON");
        assert!(body.get("enterprise").is_none() && body.get("signup").is_none(), "{body}");
    }
}
