//! Requests to identity providers: HTTPS without redirects, with limits on time and size.

use std::time::Duration;

use http::StatusCode;
use reqwest::{Client, Method, RequestBuilder, redirect};
use serde::de::DeserializeOwned;
use url::{Host, Url};

use super::error::OidcError;

const TIMEOUT: Duration = Duration::from_secs(5);
const BODY_BYTES_MAX: usize = 256 << 10;

/// The HTTP client of one provider.
pub(super) struct ProviderClient {
    client: Client,
    /// Whether the provider is on this machine, where plain HTTP is allowed.
    is_local: bool,
}

/// A response that was read completely.
pub(super) struct ProviderResponse {
    endpoint: &'static str,
    status: StatusCode,
    body: Vec<u8>,
}

impl ProviderClient {
    pub(super) fn open(base: &Url) -> Result<Self, OidcError> {
        let is_local = base.scheme() == "http";
        let mut builder = Client::builder()
            .user_agent(concat!("ipseity/", env!("CARGO_PKG_VERSION")))
            .https_only(!is_local)
            .redirect(redirect::Policy::none())
            .timeout(TIMEOUT);
        if is_local {
            builder = builder.no_proxy();
        }
        Ok(Self { client: builder.build().map_err(OidcError::CreateClient)?, is_local })
    }

    /// Parses the URL of an endpoint. Only a provider on this machine may name plain HTTP.
    pub(super) fn parse_endpoint(&self, text: &str) -> Option<Url> {
        parse_url(text).filter(|url| self.is_local || url.scheme() == "https")
    }

    pub(super) fn request(&self, method: Method, url: &Url) -> RequestBuilder {
        self.client.request(method, url.clone())
    }

    /// Sends a request. The name of the endpoint is for messages.
    pub(super) async fn send(
        &self,
        endpoint: &'static str,
        request: RequestBuilder,
    ) -> Result<ProviderResponse, OidcError> {
        let unreachable = |cause: reqwest::Error| OidcError::Unreachable { endpoint, cause: cause.without_url() };
        let mut response = request.send().await.map_err(unreachable)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(OidcError::ResponseTooLarge(endpoint));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(ProviderResponse { endpoint, status: response.status(), body })
    }
}

impl ProviderResponse {
    /// The body of a successful response.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, OidcError> {
        if self.status != StatusCode::OK {
            return Err(OidcError::UnexpectedStatus { endpoint: self.endpoint, status: self.status });
        }
        self.json_of_any_status().ok_or(OidcError::MalformedResponse(self.endpoint))
    }

    pub(super) fn json_of_any_status<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// Parses a URL that is HTTPS, or plain HTTP on this machine.
pub(super) fn parse_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_loopback = match url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    };
    (url.scheme() == "https" || url.scheme() == "http" && is_loopback).then_some(url)
}
