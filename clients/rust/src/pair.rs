//! Tokens of the caller's connections over IPv4 and over IPv6, for a lookup with both addresses.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

/// How long a lookup waits for tokens.
pub(crate) const PAIR_TIMEOUT: Duration = Duration::from_millis(500);

/// Requests tokens. Without them, a lookup returns one address.
#[derive(Debug)]
pub(crate) struct PairTokens {
    meta_url: Url,
    /// The URLs for one address family, after they were read. Empty if the service has none.
    urls: Mutex<Option<Vec<Url>>>,
}

#[derive(Deserialize)]
struct MetaBody {
    ipv4_url: Option<String>,
    ipv6_url: Option<String>,
}

#[derive(Deserialize)]
struct PairBody {
    token: String,
}

impl PairTokens {
    /// Returns `None` if the URL of a lookup has no path.
    pub(crate) fn new(lookup_url: &Url) -> Option<Self> {
        let meta_url = lookup_url.join("meta").ok()?;
        Some(Self { meta_url, urls: Mutex::new(None) })
    }

    /// The tokens that arrive before the deadline, as the value of the request header. It never fails.
    pub(crate) async fn request(&self, http: &reqwest::Client, deadline: Instant) -> Option<HeaderValue> {
        let known_urls = self.urls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let urls = match known_urls {
            Some(urls) => urls,
            None => {
                let meta: MetaBody = get_json(http, self.meta_url.clone(), deadline).await?;
                let urls = [meta.ipv4_url, meta.ipv6_url].into_iter().flatten();
                let urls: Vec<_> = urls.filter_map(|url| Url::parse(&url).ok()).collect();
                *self.urls.lock().unwrap_or_else(PoisonError::into_inner) = Some(urls.clone());
                urls
            }
        };
        let request_token = |url: Option<&Url>| {
            let url = url.and_then(|url| url.join("/api/v1/pair").ok());
            async move { get_json::<PairBody>(http, url?, deadline).await }
        };
        let (first, second) = tokio::join!(request_token(urls.first()), request_token(urls.get(1)));
        let tokens: Vec<_> = [first, second].into_iter().flatten().map(|body| body.token).collect();
        let mut value = HeaderValue::try_from(tokens.join(",")).ok().filter(|value| !value.is_empty())?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// The body of a successful response that arrives before the deadline.
fn get_json<T: DeserializeOwned>(
    http: &reqwest::Client,
    url: Url,
    deadline: Instant,
) -> impl Future<Output = Option<T>> {
    let request = http.get(url);
    let body = async move {
        let response = request.send().await.ok()?.error_for_status().ok()?;
        serde_json::from_slice(&response.bytes().await.ok()?).ok()
    };
    async move { timeout_at(deadline, body).await.ok().flatten() }
}
