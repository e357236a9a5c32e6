//! Operations on channels of alerts: webhooks and Slack.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use ipseity_store::{AlertChannel, AlertChannelKind, AlertKind};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::body::{ChannelPath, JsonBody, invalid};
use super::error::{ManageError, json_response};
use super::guard::ActingToken;
use crate::alerts::client::format_secret;
use crate::alerts::pages::random_secret;
use crate::state::Portal;
use crate::time;

type Reply = Result<Response, ManageError>;
type PortalState = State<Arc<Portal>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewChannelBody {
    kind: String,
    url: String,
    alerts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelUpdateBody {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    alerts: Option<Vec<String>>,
}

/// The URL of Slack is a secret, so only its origin is shown.
fn channel_json(channel: &AlertChannel) -> Value {
    let url = match channel.kind {
        AlertChannelKind::Webhook => channel.url.clone(),
        AlertChannelKind::Slack => {
            Url::parse(&channel.url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
        }
    };
    json!({
        "id": channel.id,
        "kind": channel.kind.name(),
        "url": url,
        "alerts": channel.alerts.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
        "pending": channel.pending,
        "failing_since": channel.failing_since_s.map(time::format_rfc3339),
        "off_since": channel.off_since_s.map(time::format_rfc3339),
        "previous_secret_until": channel.previous_until_s.map(time::format_rfc3339),
    })
}

fn parse_alerts(names: &[String]) -> Result<Vec<AlertKind>, ManageError> {
    let find = |name: &String| AlertKind::CHOICES.into_iter().find(|kind| kind.name() == name);
    let mut kinds = Vec::new();
    for name in names {
        let kind = find(name).ok_or_else(|| invalid("`alerts` has an unknown kind"))?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    if kinds.is_empty() { Err(invalid("`alerts` must have at least one kind")) } else { Ok(kinds) }
}

impl Portal {
    fn parse_channel_url(&self, text: &str) -> Result<Url, ManageError> {
        let parsed = self.destination_policy().parse_url(text);
        parsed.map_err(|error| invalid(&format!("`url` is not accepted. {}", error.to_string().trim_end_matches('.'))))
    }

    async fn channel_of(&self, token: &ActingToken, id: i64) -> Result<AlertChannel, ManageError> {
        let found = self.store.alert_channels().list(token.account.id, Some(id)).await?;
        found.into_iter().next().ok_or(ManageError::NotFound)
    }

    /// The response with a channel, and its signing secret if it is new.
    async fn channel_reply(&self, token: &ActingToken, id: i64, status: StatusCode, secret: Option<String>) -> Reply {
        let channel = self.channel_of(token, id).await?;
        let mut body = json!({ "status": "success", "channel": channel_json(&channel) });
        if let Some(secret) = secret {
            body["secret"] = secret.into();
        }
        Ok(json_response(status, &body))
    }
}

pub(super) async fn list(State(portal): PortalState, token: ActingToken) -> Reply {
    let channels = portal.store.alert_channels().list(token.account.id, None).await?;
    let channels: Vec<_> = channels.iter().map(channel_json).collect();
    let channels_max = portal.settings.alerts.channels_per_account_max;
    let body = json!({ "status": "success", "channels": channels, "channels_max": channels_max });
    Ok(json_response(StatusCode::OK, &body))
}

pub(super) async fn show(State(portal): PortalState, token: ActingToken, ChannelPath(id): ChannelPath) -> Reply {
    portal.channel_reply(&token, id, StatusCode::OK, None).await
}

pub(super) async fn create(
    State(portal): PortalState,
    token: ActingToken,
    JsonBody(body): JsonBody<NewChannelBody>,
) -> Reply {
    let kind = AlertChannelKind::find(&body.kind).ok_or_else(|| invalid("`kind` must be webhook or slack"))?;
    let url = portal.parse_channel_url(&body.url)?;
    let alerts = parse_alerts(&body.alerts)?;
    portal.count_change(&token)?;
    let (secret, channels_max) = (random_secret(), portal.settings.alerts.channels_per_account_max);
    let services = portal.change_services(&token).await?;
    let channels = services.store.alert_channels();
    let id = channels.create(token.account.id, kind, url.as_str(), &alerts, &secret, channels_max).await?;
    drop(services);
    let secret = (kind == AlertChannelKind::Webhook).then(|| format_secret(&secret));
    portal.channel_reply(&token, id, StatusCode::CREATED, secret).await
}

pub(super) async fn update(
    State(portal): PortalState,
    token: ActingToken,
    ChannelPath(id): ChannelPath,
    JsonBody(body): JsonBody<ChannelUpdateBody>,
) -> Reply {
    portal.channel_of(&token, id).await?;
    if body.url.is_none() && body.alerts.is_none() {
        return Err(invalid("it changes nothing. Send `url` or `alerts`"));
    }
    let url = body.url.map(|text| portal.parse_channel_url(&text)).transpose()?;
    let alerts = body.alerts.as_deref().map(parse_alerts).transpose()?;
    portal.count_change(&token)?;
    let services = portal.change_services(&token).await?;
    services
        .store
        .alert_channels()
        .update(token.account.id, id, url.as_ref().map(Url::as_str), alerts.as_deref())
        .await?;
    drop(services);
    portal.channel_reply(&token, id, StatusCode::OK, None).await
}

pub(super) async fn rotate_secret(
    State(portal): PortalState,
    token: ActingToken,
    ChannelPath(id): ChannelPath,
) -> Reply {
    let channel = portal.channel_of(&token, id).await?;
    if channel.kind == AlertChannelKind::Slack {
        return Err(invalid("a Slack channel has no signing secret"));
    }
    portal.count_change(&token)?;
    let secret = random_secret();
    let services = portal.change_services(&token).await?;
    services.store.alert_channels().rotate_secret(token.account.id, id, &secret).await?;
    drop(services);
    portal.channel_reply(&token, id, StatusCode::OK, Some(format_secret(&secret))).await
}

pub(super) async fn send_test(State(portal): PortalState, token: ActingToken, ChannelPath(id): ChannelPath) -> Reply {
    portal.channel_of(&token, id).await?;
    portal.count_change(&token)?;
    let services = portal.change_services(&token).await?;
    services.store.alert_channels().queue_test(token.account.id, id).await?;
    drop(services);
    portal.channel_reply(&token, id, StatusCode::OK, None).await
}

/// Not throttled, like every revocation.
pub(super) async fn delete(State(portal): PortalState, token: ActingToken, ChannelPath(id): ChannelPath) -> Reply {
    portal.channel_of(&token, id).await?;
    let services = portal.change_services(&token).await?;
    services.store.alert_channels().delete(token.account.id, id).await?;
    Ok(json_response(StatusCode::OK, &json!({ "status": "success" })))
}
