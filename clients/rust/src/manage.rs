//! The management API, for servers of an account's owner: keys, usage and channels of alerts.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::send_once;
use crate::error::Error;
use crate::key_status::KeyLimits;
use crate::ticket;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of the management API. It never repeats a request, because most of them change something.
#[derive(Clone, Debug)]
pub struct ManagementClient {
    http: reqwest::Client,
    base: Url,
    headers: HeaderMap,
    timeout: Duration,
}

/// A key.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ManagedKey {
    /// Id. It is public and never changes.
    pub id: String,
    /// Name.
    pub name: String,
    /// Scope: `ip`, `geo` or `full`.
    pub scope: String,
    /// State: `active`, `paused` or `inactive`.
    pub state: String,
    /// What the next request can expect, in the words of the portal.
    pub key_status: String,
    /// Limits.
    pub limits: KeyLimits,
    /// Requests today.
    pub used_today: u64,
    /// When it was created, as RFC 3339.
    pub created_at: String,
    /// Until when the secret before a rotation is valid, as RFC 3339.
    pub previous_secret_until: Option<String>,
    /// The last day with requests, such as `2026-11-15`.
    pub last_used_on: Option<String>,
    /// Who may use it.
    pub restrictions: ManagedRestrictions,
    /// What the key did before it was paused, if it is paused.
    pub pause: Option<ManagedPauseEvidence>,
}

/// What a key did in the 60 seconds before a pause.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ManagedPauseEvidence {
    /// When the key was paused, as RFC 3339.
    pub paused_at: String,
    /// Requests in the 60 seconds before.
    pub requests: u64,
    /// Requests in each of these seconds, oldest first.
    pub requests_per_second: Vec<u32>,
}

/// A key after a change.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ChangedKey {
    /// The key.
    pub key: ManagedKey,
    /// Whether requests see the change already. False while the service's Redis is unavailable: they see it as soon as it is back.
    pub applied: bool,
}

/// A key with a new secret.
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct CreatedKey {
    /// The key.
    pub key: ManagedKey,
    /// The complete API key. It is returned once.
    pub secret: String,
    /// Whether requests see the change already. False while the service's Redis is unavailable: they see it as soon as it is back.
    pub applied: bool,
}

/// A new key.
#[derive(Clone, Debug, Serialize)]
pub struct NewKey {
    /// Name.
    pub name: String,
    /// Scope: `ip`, `geo` or `full`.
    pub scope: String,
    /// Who may use it. `None` for anyone.
    pub restrictions: Option<ManagedRestrictions>,
}

/// Restrictions of a key. The default restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ManagedRestrictions {
    /// Allowed origins of web pages.
    pub origins: Vec<String>,
    /// Allowed networks.
    pub networks: Vec<String>,
    /// When the key expires, as RFC 3339.
    pub expires_at: Option<String>,
    /// Requests per minute of one caller at each node.
    pub caller_limit: Option<u32>,
    /// Requests per day.
    pub daily_limit: Option<u64>,
    /// Whether the key accepts only tickets.
    pub tickets_only: bool,
}

/// Changes of a key. `None` stays as it is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KeyUpdate {
    /// New name.
    pub name: Option<String>,
    /// Replace all restrictions.
    pub restrictions: Option<ManagedRestrictions>,
    /// `false` deactivates the key, `true` reactivates it.
    pub is_active: Option<bool>,
}

/// A pause and its evidence.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Pause {
    /// What the key did.
    #[serde(flatten)]
    pub evidence: ManagedPauseEvidence,
    /// Number of the key's burst window that it ended.
    pub epoch: u64,
    /// Whether the key is still paused by it.
    pub is_current: bool,
    /// When the key was resumed, as RFC 3339.
    pub resumed_at: Option<String>,
    /// Who resumed it: `owner` or `operator`.
    pub resumed_by: Option<String>,
}

/// Requests of a key on a day.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct UsageDay {
    /// The day, such as `2026-11-15`.
    pub day: String,
    /// Id of the key.
    pub key: String,
    /// Admitted requests.
    pub admitted: u64,
    /// Rejected requests by reason.
    pub rejected: std::collections::BTreeMap<String, u64>,
}

/// A webhook or a Slack channel.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct ManagedChannel {
    /// Id.
    pub id: i64,
    /// `webhook` or `slack`.
    pub kind: String,
    /// Where alerts are sent. Of Slack, only scheme and host.
    pub url: String,
    /// Kinds of alerts, such as `paused`.
    pub alerts: Vec<String>,
    /// Alerts that are not delivered yet.
    pub pending: u64,
    /// Since when deliveries fail, as RFC 3339.
    pub failing_since: Option<String>,
    /// Since when the channel is off, because its receiver answered that it is gone, as RFC 3339.
    pub off_since: Option<String>,
    /// Until when the signing secret before a rotation signs too, as RFC 3339.
    pub previous_secret_until: Option<String>,
}

/// A channel with a new signing secret.
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct CreatedChannel {
    /// The channel.
    pub channel: ManagedChannel,
    /// The signing secret of a webhook. It is returned once.
    pub secret: Option<String>,
}

/// A new channel.
#[derive(Clone, Debug, Serialize)]
pub struct NewChannel {
    /// `webhook` or `slack`.
    pub kind: String,
    /// Where alerts are sent.
    pub url: String,
    /// Kinds of alerts.
    pub alerts: Vec<String>,
}

/// Changes of a channel. `None` stays as it is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChannelUpdate {
    /// New URL. It turns the channel on.
    pub url: Option<String>,
    /// New kinds of alerts.
    pub alerts: Option<Vec<String>>,
}

impl ManagementClient {
    /// Creates a client for a base URL, such as `https://ip.example`, and a personal token.
    pub fn open(base_url: &str, token: &str) -> Result<Self, Error> {
        let bearer = ticket::bearer(token);
        let bearer = bearer.map_err(|_| Error::Setup("the token contains invalid characters".to_owned()))?;
        let base = Url::parse(&format!("{}/api/v1/manage", base_url.trim_end_matches('/')));
        Ok(Self {
            http: reqwest::Client::builder().build().map_err(|error| Error::Setup(error.to_string()))?,
            base: base.map_err(|error| Error::Setup(format!("invalid base URL: {error}")))?,
            headers: HeaderMap::from_iter([(AUTHORIZATION, bearer)]),
            timeout: DEFAULT_TIMEOUT,
        })
    }

    /// Sets the HTTP client, to share connections, trust other certificates or use a proxy.
    #[must_use]
    pub fn http_client(self, http: reqwest::Client) -> Self {
        Self { http, ..self }
    }

    /// Sets the timeout of a request. Default: 10 seconds.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Lists keys, oldest first.
    pub async fn list_keys(&self) -> Result<Vec<ManagedKey>, Error> {
        self.get(&["keys"], "keys").await
    }

    /// Gets a key.
    pub async fn get_key(&self, id: &str) -> Result<ManagedKey, Error> {
        self.get(&["keys", id], "key").await
    }

    /// Creates a key.
    pub async fn create_key(&self, key: &NewKey) -> Result<CreatedKey, Error> {
        self.send(Method::POST, &["keys"], json!(key)).await
    }

    /// Changes a key.
    pub async fn update_key(&self, id: &str, update: &KeyUpdate) -> Result<ChangedKey, Error> {
        self.send(Method::PATCH, &["keys", id], json!(update)).await
    }

    /// Replaces the secret of a key. The previous one stays valid for `overlap`, at most a week.
    pub async fn rotate_key(&self, id: &str, overlap: Duration) -> Result<CreatedKey, Error> {
        self.send(Method::POST, &["keys", id, "rotate"], json!({ "overlap_s": overlap.as_secs() })).await
    }

    /// Revokes the previous secret of a key.
    pub async fn revoke_previous_secret(&self, id: &str) -> Result<ChangedKey, Error> {
        self.send(Method::POST, &["keys", id, "revoke-previous"], Value::Null).await
    }

    /// Resumes a paused key, if the owner of the account lets tokens do it.
    pub async fn resume_key(&self, id: &str) -> Result<ChangedKey, Error> {
        self.send(Method::POST, &["keys", id, "resume"], Value::Null).await
    }

    /// Deletes a key. Returns whether requests see it already.
    pub async fn delete_key(&self, id: &str) -> Result<bool, Error> {
        self.send_for(Method::DELETE, &["keys", id], Value::Null, "applied").await
    }

    /// Lists the newest pauses of a key, newest first.
    pub async fn list_pauses(&self, id: &str) -> Result<Vec<Pause>, Error> {
        self.get(&["keys", id, "pauses"], "pauses").await
    }

    /// Gets the usage of all keys, or of the one with this id, in the last 30 days: each key and day with requests.
    pub async fn usage(&self, key: Option<&str>) -> Result<Vec<UsageDay>, Error> {
        let mut client = self.clone();
        if let Some(key) = key {
            client.base.query_pairs_mut().append_pair("key", key);
        }
        client.get(&["usage"], "days").await
    }

    /// Lists channels of alerts.
    pub async fn list_channels(&self) -> Result<Vec<ManagedChannel>, Error> {
        self.get(&["channels"], "channels").await
    }

    /// Gets a channel of alerts.
    pub async fn get_channel(&self, id: i64) -> Result<ManagedChannel, Error> {
        self.get(&["channels", &id.to_string()], "channel").await
    }

    /// Creates a channel of alerts.
    pub async fn create_channel(&self, channel: &NewChannel) -> Result<CreatedChannel, Error> {
        self.send(Method::POST, &["channels"], json!(channel)).await
    }

    /// Changes a channel of alerts.
    pub async fn update_channel(&self, id: i64, update: &ChannelUpdate) -> Result<ManagedChannel, Error> {
        self.send_for(Method::PATCH, &["channels", &id.to_string()], json!(update), "channel").await
    }

    /// Replaces the signing secret of a webhook. The previous one signs too for 24 hours.
    pub async fn rotate_channel_secret(&self, id: i64) -> Result<CreatedChannel, Error> {
        self.send(Method::POST, &["channels", &id.to_string(), "rotate-secret"], Value::Null).await
    }

    /// Sends a test alert to a channel.
    pub async fn test_channel(&self, id: i64) -> Result<ManagedChannel, Error> {
        self.send_for(Method::POST, &["channels", &id.to_string(), "test"], Value::Null, "channel").await
    }

    /// Deletes a channel of alerts.
    pub async fn delete_channel(&self, id: i64) -> Result<(), Error> {
        self.send::<Value>(Method::DELETE, &["channels", &id.to_string()], Value::Null).await.map(drop)
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], field: &str) -> Result<T, Error> {
        self.send_for(Method::GET, path, Value::Null, field).await
    }

    /// Sends a request, and returns one field of the response.
    async fn send_for<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        body: Value,
        field: &str,
    ) -> Result<T, Error> {
        let mut response: Value = self.send(method, path, body).await?;
        serde_json::from_value(response[field].take())
            .map_err(|_| Error::Setup(format!("the service returned no `{field}`, check the base URL")))
    }

    /// The segments of the path are escaped, so that an id cannot select another operation.
    async fn send<T: DeserializeOwned>(&self, method: Method, path: &[&str], body: Value) -> Result<T, Error> {
        let mut url = self.base.clone();
        url.path_segments_mut().map_err(|()| Error::Setup("invalid base URL".to_owned()))?.extend(path);
        let mut request = self.http.request(method, url).headers(self.headers.clone());
        if !body.is_null() {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let response = timeout(self.timeout, send_once(request)).await.unwrap_or(Err(Error::Timeout(self.timeout)))?;
        response.parse()
    }
}
