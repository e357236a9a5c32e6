//! Reads the rate limit headers of a response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// A limit and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// Maximum number of requests: per day, or per 60 seconds for the burst limit.
    pub limit: u64,
    /// Requests left.
    pub remaining: u64,
    /// When the limit resets.
    pub reset: SystemTime,
}

impl RateLimit {
    /// A header that a proxy removed counts as zero.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let number = |name| header_value(headers, name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let reset = UNIX_EPOCH + Duration::from_secs(number("x-ratelimit-reset"));
        Self { limit: number("x-ratelimit-limit"), remaining: number("x-ratelimit-remaining"), reset }
    }
}

/// Time to wait, from `Retry-After`. A proxy may send a date instead of seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = header_value(headers, RETRY_AFTER.as_str())?;
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(value).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

pub(crate) fn header_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_retry_after(value: &str) -> Option<Duration> {
        retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value.parse().expect("value is a valid header"))]))
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(parse_retry_after("60"), Some(Duration::from_secs(60)));
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(parse_retry_after(&date).is_some_and(|wait| (90..=100).contains(&wait.as_secs())));
        assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(parse_retry_after("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
