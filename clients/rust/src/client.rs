//! The client: one method, `lookup`.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, Refusal};
use crate::facts::{Demo, Keyed, Scope};
use crate::limits::{Limits, text};
use crate::retry::{self, RetryBudget};

const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_BUDGET: u32 = 10;

/// A lookup's answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer<S> {
    /// What the service knows of you.
    pub facts: S,
    /// What is left of the day's quota.
    pub limits: Limits,
    /// The request's id, to be told when you ask for help.
    pub request_id: Option<String>,
}

/// A client for one scope. Clones share their connections and their retry budget.
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

impl<S: Keyed> Client<S> {
    /// A client of the service at this address, such as `https://ip.example`, with a key whose scope is `S` or wider.
    pub fn open(base_url: &str, key: &str) -> Result<Self, Error> {
        let bearer = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut bearer = bearer.map_err(|_| Error::Setup("the key holds what no header can".to_owned()))?;
        bearer.set_sensitive(true);
        Self::with_headers(base_url, HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
    }
}

impl Client<Demo> {
    /// A client of the demo, which needs no key; all its callers share one quota.
    pub fn open_demo(base_url: &str) -> Result<Self, Error> {
        Self::with_headers(base_url, HeaderMap::new())
    }
}

impl<S: Scope> Client<S> {
    fn with_headers(base_url: &str, headers: HeaderMap) -> Result<Self, Error> {
        let url = Url::parse(&format!("{}/api/v1/{}", base_url.trim_end_matches('/'), S::PATH));
        let url = url.map_err(|error| Error::Setup(format!("the base URL cannot be read: {error}")))?;
        let http = reqwest::Client::builder().build().map_err(|error| Error::Setup(error.to_string()))?;
        let budget = Arc::new(RetryBudget::new(RETRY_BUDGET));
        Ok(Self { http, url, headers, timeout: TIMEOUT, budget, scope: PhantomData })
    }

    /// Uses this HTTP client: one that is shared, has its own trust, or goes through a proxy.
    #[must_use]
    pub fn http(self, http: reqwest::Client) -> Self {
        Self { http, ..self }
    }

    /// Sets the time for a lookup, retries and the waits between them included: 10 seconds unless told.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets how many retries the client may make, refilled by one for every ten answers: 10 unless told, 0 for none.
    #[must_use]
    pub fn retry_budget(self, retries: u32) -> Self {
        Self { budget: Arc::new(RetryBudget::new(retries)), ..self }
    }

    /// Asks who you are. Dropping the future ends the lookup.
    pub async fn lookup(&self) -> Result<Answer<S>, Error> {
        let deadline = Instant::now() + self.timeout;
        timeout(self.timeout, self.persist(deadline)).await.unwrap_or(Err(Error::Timeout(self.timeout)))
    }

    /// Asks until an answer comes, or another try is in vain, too late or beyond the budget.
    async fn persist(&self, deadline: Instant) -> Result<Answer<S>, Error> {
        let mut tries = 1;
        loop {
            let error = match self.ask().await {
                Ok(answer) => {
                    self.budget.earn();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            match retry::wait(&error, tries) {
                Some(wait) if Instant::now() + wait < deadline && self.budget.spend() => sleep(wait).await,
                Some(_) | None => return Err(error),
            }
            tries += 1;
        }
    }

    /// Asks once.
    async fn ask(&self) -> Result<Answer<S>, Error> {
        let request = self.http.get(self.url.clone()).headers(self.headers.clone());
        let response = request.send().await.map_err(Error::Connection)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(Error::Connection)?;
        let refuse = || Error::Refused(Box::new(Refusal::read(status.as_u16(), &headers, &body)));
        let facts: Value = serde_json::from_slice(&body).map_err(|_| refuse())?;
        if facts["status"] != "success" {
            return Err(refuse());
        }
        // Optional fields may be missing as far as serde is concerned; null is what the contract says.
        if facts.get(S::WITNESS).is_none() {
            return Err(Error::NarrowKey(S::NAME));
        }
        let facts = serde_json::from_value(facts).map_err(|_| refuse())?;
        let request_id = text(&headers, "x-request-id").map(str::to_owned);
        Ok(Answer { facts, limits: Limits::read(&headers), request_id })
    }
}
