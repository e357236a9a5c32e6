//! Sends alerts to channels over HTTP.

use std::error::Error;
use std::iter;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use ipseity_store::{AlertTarget, QueuedAlert};
use reqwest::{Client, ClientBuilder, Response, redirect};
use uuid::Uuid;

use super::destination::{ChannelUrlError, DestinationPolicy, PrivateAddress};
use super::message::{slack_body, webhook_body};

/// The outcome of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) is_delivered: bool,
    /// Whether the receiver wants no more alerts (Standard Webhooks).
    pub(super) is_gone: bool,
    /// Such as `HTTP 503`. Nothing of the response's text, because the receiver chooses it.
    pub(super) outcome: String,
    /// When the receiver wants the next attempt.
    pub(super) retry_after: Option<Duration>,
}

/// The HTTP clients of all channels. Both follow no redirects, which could lead to private networks.
pub(super) struct ChannelClient {
    policy: DestinationPolicy,
    https: Client,
    /// For networks that the operator allows.
    plain: Client,
    timeout: Duration,
}

impl ChannelClient {
    pub(super) fn open(policy: &DestinationPolicy, timeout: Duration) -> Result<Self, reqwest::Error> {
        let builder = |is_plain| {
            // A proxy would resolve names itself, so the check of addresses would be in vain.
            let builder = ClientBuilder::new().no_proxy().dns_resolver(policy.resolver(is_plain)).timeout(timeout);
            builder.redirect(redirect::Policy::none()).user_agent(concat!("ipseity/", env!("CARGO_PKG_VERSION")))
        };
        Ok(Self {
            https: builder(false).https_only(true).build()?,
            plain: builder(true).build()?,
            policy: policy.clone(),
            timeout,
        })
    }

    /// Makes an attempt. None if the alert goes by email.
    pub(super) async fn send(&self, alert: &QueuedAlert, base_url: &str) -> Option<Attempt> {
        let (url, secrets, body) = match &alert.target {
            AlertTarget::Email(_) => return None,
            AlertTarget::Webhook { url, secrets } => (url, secrets.as_slice(), webhook_body(alert, base_url)),
            AlertTarget::Slack { url } => (url, &[][..], slack_body(alert, base_url)),
        };
        // Checked again, because the allowed networks can have changed.
        let url = match self.policy.parse_url(url) {
            Ok(url) => url,
            Err(error) => return Some(Attempt::failed(describe_url_error(error))),
        };
        let client = if url.scheme() == "https" { &self.https } else { &self.plain };
        let mut request = client.post(url).header(CONTENT_TYPE, "application/json");
        if !secrets.is_empty() {
            let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()).to_string();
            let id = webhook_id(alert.message_id);
            request = request
                .header("webhook-signature", signatures(secrets, &id, &timestamp, &body))
                .header("webhook-id", id)
                .header("webhook-timestamp", timestamp);
        }
        Some(match request.body(body).send().await {
            Ok(response) => Attempt::of_response(&response),
            Err(error) => Attempt::failed(self.describe_error(&error)),
        })
    }

    /// Without the URL, which can be a secret.
    fn describe_error(&self, error: &reqwest::Error) -> String {
        if causes_of(error).any(|cause| cause.is::<PrivateAddress>()) {
            return describe_url_error(ChannelUrlError::Private).to_owned();
        }
        if error.is_timeout() {
            return format!("no response within {} s", self.timeout.as_secs_f64());
        }
        let is_tls = causes_of(error).any(|cause| cause.to_string().contains("certificate"));
        match (error.is_connect(), is_tls) {
            (_, true) => "invalid certificate",
            (true, false) => "cannot connect",
            (false, false) => "connection closed without a response",
        }
        .to_owned()
    }
}

const fn describe_url_error(error: ChannelUrlError) -> &'static str {
    match error {
        ChannelUrlError::Private => "the address is not public",
        ChannelUrlError::Malformed | ChannelUrlError::NotHttps | ChannelUrlError::HasCredentials => {
            "the URL is not allowed"
        }
    }
}

fn causes_of(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    iter::successors(error.source(), |&cause| cause.source())
}

impl Attempt {
    fn failed(outcome: impl Into<String>) -> Self {
        Self { is_delivered: false, is_gone: false, outcome: outcome.into(), retry_after: None }
    }

    fn of_response(response: &Response) -> Self {
        let status = response.status();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Self {
            is_delivered: status.is_success(),
            is_gone: status == StatusCode::GONE,
            outcome: format!("HTTP {}", status.as_u16()),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }
}

/// The id that receivers recognize duplicates by.
pub(crate) fn webhook_id(message_id: Uuid) -> String {
    format!("msg_{}", message_id.simple())
}

/// A secret as receivers configure it (Standard Webhooks).
pub(crate) fn format_secret(secret: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(secret))
}

/// The signatures by each secret (Standard Webhooks).
fn signatures(secrets: &[Vec<u8>], id: &str, timestamp: &str, body: &[u8]) -> String {
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    let sign = |secret: &Vec<u8>| {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &signed);
        format!("v1,{}", STANDARD.encode(tag))
    };
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_that_of_the_specification() {
        // The example of the reference libraries.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let body = br#"{"test": 2432232314}"#;
        let signed = signatures(&[secret.clone(), secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signed, format!("{expected} {expected}"));
    }
}
