//! The client: `lookup`, `key` for the status of the key, and `create_ticket`.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName};
use reqwest::{RequestBuilder, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{ApiError, ApiErrorKind, Error};
use crate::facts::{Demo, KeyScope, LookupScope};
use crate::key_status::KeyStatusResponse;
use crate::pair::{PAIR_TIMEOUT, PairTokens};
use crate::rate_limit::{RateLimit, header_value};
use crate::retry::{self, RetryBudget};
use crate::ticket::{self, TicketCache, TicketRequest, TicketResponse};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_RETRY_BUDGET: u32 = 10;
const PAIR_HEADER: &str = "ipseity-pair";

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

/// A client for one scope. Clones share connections, the retry budget and the current ticket.
#[derive(Debug)]
pub struct Client<S> {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
    budget: Arc<RetryBudget>,
    tickets: Option<Arc<TicketCache>>,
    pair_tokens: Option<Arc<PairTokens>>,
    scope: PhantomData<fn() -> S>,
}

impl<S> Clone for Client<S> {
    fn clone(&self) -> Self {
        let Self { http, url, headers, timeout, budget, tickets, pair_tokens, scope } = self;
        let (http, url, headers, budget) = (http.clone(), url.clone(), headers.clone(), Arc::clone(budget));
        let (tickets, pair_tokens) = (tickets.clone(), pair_tokens.clone());
        Self { http, url, headers, timeout: *timeout, budget, tickets, pair_tokens, scope: *scope }
    }
}

impl<S: KeyScope> Client<S> {
    /// Creates a client for a base URL, such as `https://ip.example`, and a key with scope `S` or wider.
    pub fn open(base_url: &str, key: &str) -> Result<Self, Error> {
        let bearer = ticket::bearer(key);
        let bearer = bearer.map_err(|_| Error::Setup("the key contains invalid characters".to_owned()))?;
        Self::with_headers(base_url, HeaderMap::from_iter([(AUTHORIZATION, bearer)]))
    }

    /// Creates a client without a key. `source` gets a ticket from your server, which has the key. Lookups share a ticket until it
    /// expires or is used up. If the service rejects it, a lookup gets a new one and is repeated, once.
    pub fn open_with_tickets<F, R>(base_url: &str, source: F) -> Result<Self, Error>
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<TicketResponse, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let client = Self::with_headers(base_url, HeaderMap::new())?;
        Ok(Self { tickets: Some(Arc::new(TicketCache::new(source))), ..client })
    }

    /// Gets the status of the key. It is not charged.
    pub async fn key(&self) -> Result<KeyStatusResponse, Error> {
        let url = self.endpoint("key")?;
        let request = || self.http.get(url.clone());
        self.send_with_retries(request, async { self.headers.clone() }, SuccessResponse::parse).await
    }

    /// Creates a ticket with scope `S`, for a page or program without a key. It needs a client with a key, and is not charged.
    pub async fn create_ticket(&self, ticket: &TicketRequest) -> Result<TicketResponse, Error> {
        let url = self.endpoint("tickets")?;
        let body = ticket.to_json(S::NAME);
        let request = || self.http.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body.clone());
        self.send_with_retries(request, async { self.headers.clone() }, SuccessResponse::parse).await
    }

    fn endpoint(&self, name: &str) -> Result<Url, Error> {
        self.url.join(name).map_err(|error| Error::Setup(format!("invalid base URL: {error}")))
    }

    /// Selects the made-up caller that a test key returns, such as `mobile`. Other keys ignore it.
    #[must_use]
    pub fn test_as(self, caller: &str) -> Self {
        self.with_query("as", caller)
    }

    /// Selects the error that a test key returns, such as `day`. Other keys ignore it.
    #[must_use]
    pub fn test_fail(self, failure: &str) -> Self {
        self.with_query("fail", failure)
    }

    fn with_query(mut self, name: &str, value: &str) -> Self {
        self.url.query_pairs_mut().append_pair(name, value);
        self
    }

    /// Sets whether lookups return both addresses of the caller, IPv4 and IPv6, if the service and the caller have both. Before
    /// each lookup, the client requests a token over each. It waits for them for at most half a second, and not longer than half
    /// of the timeout. Without a token, a lookup returns one address. Default: false.
    #[must_use]
    pub fn both(self, both: bool) -> Self {
        let pair_tokens = if both { PairTokens::new(&self.url).map(Arc::new) } else { None };
        Self { pair_tokens, ..self }
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
        let (timeout, scope) = (DEFAULT_TIMEOUT, PhantomData);
        Ok(Self { http, url, headers, timeout, budget, tickets: None, pair_tokens: None, scope })
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
        let parse = |response: SuccessResponse| {
            // serde accepts a missing optional field, but the API sends every field of a scope.
            if response.body.get(S::MARKER_FIELD).is_none() {
                return Err(Error::InsufficientScope(S::NAME));
            }
            let request_id = header_value(&response.headers, "x-request-id").map(str::to_owned);
            let rate_limit = RateLimit::from_headers(&response.headers);
            Ok(LookupResponse { facts: response.parse()?, rate_limit, request_id })
        };
        self.send_with_retries(|| self.http.get(self.url.clone()), self.headers_with_tokens(), parse).await
    }

    /// Sends the request until it succeeds, or until a retry is pointless, too late or over the budget.
    async fn send_with_retries<T>(
        &self,
        request: impl Fn() -> RequestBuilder,
        headers: impl Future<Output = HeaderMap>,
        parse: impl Fn(SuccessResponse) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + self.timeout;
        let attempts = async {
            let headers = headers.await;
            let mut attempts = 1;
            let mut is_ticket_replaced = false;
            loop {
                let ticket = match &self.tickets {
                    Some(tickets) => Some((tickets, tickets.take().await?)),
                    None => None,
                };
                let authorization = ticket.iter().map(|(_, ticket)| (AUTHORIZATION, ticket.clone())).collect();
                let request = request().headers(headers.clone()).headers(authorization);
                let error = match send_once(request).await.and_then(&parse) {
                    Ok(response) => {
                        self.budget.deposit();
                        return Ok(response);
                    }
                    Err(error) => error,
                };
                match (ticket, retry::retry_delay(&error, attempts)) {
                    // The ticket may have expired on the way. If a new one is rejected too, a third would not help.
                    (Some((tickets, ticket)), _) if is_invalid_ticket(&error) && !is_ticket_replaced => {
                        is_ticket_replaced = true;
                        tickets.discard(&ticket).await;
                    }
                    (_, Some(delay)) if Instant::now() + delay < deadline && self.budget.withdraw() => {
                        sleep(delay).await
                    }
                    (_, Some(_) | None) => return Err(error),
                }
                attempts += 1;
            }
        };
        timeout(self.timeout, attempts).await.unwrap_or(Err(Error::Timeout(self.timeout)))
    }

    async fn headers_with_tokens(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(pair_tokens) = &self.pair_tokens {
            let deadline = Instant::now() + PAIR_TIMEOUT.min(self.timeout / 2);
            let tokens = pair_tokens.request(&self.http, deadline).await;
            headers.extend(tokens.map(|tokens| (HeaderName::from_static(PAIR_HEADER), tokens)));
        }
        headers
    }
}

pub(crate) async fn send_once(request: RequestBuilder) -> Result<SuccessResponse, Error> {
    let response = request.send().await.map_err(Error::Connection)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await.map_err(Error::Connection)?.to_vec();
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(body) if body["status"] == "success" => Ok(SuccessResponse { status, headers, bytes, body }),
        Ok(_) | Err(_) => Err(api_error(status, &headers, &bytes)),
    }
}

fn is_invalid_ticket(error: &Error) -> bool {
    matches!(error, Error::Api(api_error) if api_error.kind == ApiErrorKind::InvalidTicket)
}

/// A response whose body says that the request succeeded.
pub(crate) struct SuccessResponse {
    status: u16,
    headers: HeaderMap,
    bytes: Vec<u8>,
    body: Value,
}

impl SuccessResponse {
    pub(crate) fn parse<T: DeserializeOwned>(self) -> Result<T, Error> {
        serde_json::from_value(self.body).map_err(|_| api_error(self.status, &self.headers, &self.bytes))
    }
}

fn api_error(status: u16, headers: &HeaderMap, body: &[u8]) -> Error {
    Error::Api(Box::new(ApiError::from_response(status, headers, body)))
}
