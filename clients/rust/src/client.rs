//! The client, with one method: `lookup`.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{ApiError, Error};
use crate::facts::{Demo, KeyScope, LookupScope};
use crate::rate_limit::{RateLimit, header_value};
use crate::retry::{self, RetryBudget};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_RETRY_BUDGET: u32 = 10;

/// Response to a lookup.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LookupResponse<S> {
    /// The fields of the scope.
    pub facts: S,
    /// The daily quota and what is left of it.
    pub rate_limit: RateLimit,
    /// Request ID. Include it when you contact support.
    pub request_id: Option<String>,
}

/// A client for one scope. Clones share connections and the retry budget.
#[derive(Debug)]
pub struct Client<S> {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
    budget: Arc<RetryBudget>,
    scope: PhantomData<fn() -> S>,
}

impl<S> Clone for Client<S> {
    fn clone(&self) -> Self {
        let Self { http, url, headers, timeout, budget, scope } = self;
        let (http, url, headers, budget) = (http.clone(), url.clone(), headers.clone(), Arc::clone(budget));
        Self { http, url, headers, timeout: *timeout, budget, scope: *scope }
    }
}

impl<S: KeyScope> Client<S> {
    /// Creates a client for a base URL, such as `https://ip.example`, and a key with scope `S` or wider.
    pub fn open(base_url: &str, key: &str) -> Result<Self, Error> {
        let bearer = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut bearer = bearer.map_err(|_| Error::Setup("the key contains invalid characters".to_owned()))?;
        bearer.set_sensitive(true);
        Self::with_headers(base_url, HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
    }
}

impl Client<Demo> {
    /// Creates a client for the demo, which needs no key. All callers share its quota.
    pub fn open_demo(base_url: &str) -> Result<Self, Error> {
        Self::with_headers(base_url, HeaderMap::new())
    }
}

impl<S: LookupScope> Client<S> {
    fn with_headers(base_url: &str, headers: HeaderMap) -> Result<Self, Error> {
        let url = Url::parse(&format!("{}/api/v1/{}", base_url.trim_end_matches('/'), S::PATH));
        let url = url.map_err(|error| Error::Setup(format!("invalid base URL: {error}")))?;
        let http = reqwest::Client::builder().build().map_err(|error| Error::Setup(error.to_string()))?;
        let budget = Arc::new(RetryBudget::new(DEFAULT_RETRY_BUDGET));
        Ok(Self { http, url, headers, timeout: DEFAULT_TIMEOUT, budget, scope: PhantomData })
    }

    /// Sets the HTTP client, to share connections, trust other certificates or use a proxy.
    #[must_use]
    pub fn http_client(self, http: reqwest::Client) -> Self {
        Self { http, ..self }
    }

    /// Sets the timeout of a lookup, including retries and the waits between them. Default: 10 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the maximum number of retries. Ten successful responses add one back. Default: 10; 0 disables retries.
    #[must_use]
    pub fn retry_budget(self, retries: u32) -> Self {
        Self { budget: Arc::new(RetryBudget::new(retries)), ..self }
    }

    /// Looks up the caller. Dropping the future cancels the lookup.
    pub async fn lookup(&self) -> Result<LookupResponse<S>, Error> {
        let deadline = Instant::now() + self.timeout;
        timeout(self.timeout, self.lookup_with_retries(deadline)).await.unwrap_or(Err(Error::Timeout(self.timeout)))
    }

    /// Sends the request until it succeeds, or until a retry is pointless, too late or over the budget.
    async fn lookup_with_retries(&self, deadline: Instant) -> Result<LookupResponse<S>, Error> {
        let mut attempts = 1;
        loop {
            let error = match self.send_once().await {
                Ok(response) => {
                    self.budget.deposit();
                    return Ok(response);
                }
                Err(error) => error,
            };
            match retry::retry_delay(&error, attempts) {
                Some(delay) if Instant::now() + delay < deadline && self.budget.withdraw() => sleep(delay).await,
                Some(_) | None => return Err(error),
            }
            attempts += 1;
        }
    }

    async fn send_once(&self) -> Result<LookupResponse<S>, Error> {
        let request = self.http.get(self.url.clone()).headers(self.headers.clone());
        let response = request.send().await.map_err(Error::Connection)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(Error::Connection)?;
        let api_error = || Error::Api(Box::new(ApiError::from_response(status.as_u16(), &headers, &body)));
        let facts: Value = serde_json::from_slice(&body).map_err(|_| api_error())?;
        if facts["status"] != "success" {
            return Err(api_error());
        }
        // serde accepts a missing optional field, but the API sends every field of a scope.
        if facts.get(S::MARKER_FIELD).is_none() {
            return Err(Error::InsufficientScope(S::NAME));
        }
        let facts = serde_json::from_value(facts).map_err(|_| api_error())?;
        let request_id = header_value(&headers, "x-request-id").map(str::to_owned);
        Ok(LookupResponse { facts, rate_limit: RateLimit::from_headers(&headers), request_id })
    }
}
