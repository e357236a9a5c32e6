//! The pages of alerts: by email, and the webhooks and Slack channels of the account.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use ipseity_store::{
    AlertChannel, AlertChannelKind, AlertDelivery, AlertDeliveryState, AlertKind, EMAIL_ALERTS, StoreError,
    StoreRefusal,
};
use url::Url;

use crate::alerts::client::{format_secret, webhook_id};
use crate::alerts::destination::DestinationPolicy;
use crate::alerts::message::alert_label;
use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::keys::single_use::form_token;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::alerts::{
    AlertChannelItem, AlertChannelPage, AlertChoice, AlertsPage, DeliveryBadge, DeliveryRow, NewChannelForm,
};
use crate::view::frame::Tab;

const PAGE: &str = "/account/alerts";
const DELIVERIES_MAX: i64 = 50;
const NO_ALERTS: &str = "Choose at least one kind of alert.";

/// A channel as entered.
struct ChannelInput {
    kind: AlertChannelKind,
    url: String,
    alerts: Vec<AlertKind>,
}

impl ChannelInput {
    fn read(form: &CsrfForm) -> Self {
        Self {
            kind: AlertChannelKind::find(form.field("kind")).unwrap_or(AlertChannelKind::Webhook),
            url: form.field("url").to_owned(),
            alerts: checked_alerts(form),
        }
    }

    /// The URL to store, or what is wrong.
    fn check(&self, portal: &Portal) -> Result<Url, String> {
        let url = portal.destination_policy().parse_url(&self.url).map_err(|error| error.to_string())?;
        if self.alerts.is_empty() { Err(NO_ALERTS.to_owned()) } else { Ok(url) }
    }
}

fn checked_alerts(form: &CsrfForm) -> Vec<AlertKind> {
    AlertKind::CHOICES.into_iter().filter(|kind| form.is_checked(kind.name())).collect()
}

fn alert_choices(kinds: &[AlertKind], checked: &[AlertKind]) -> Vec<AlertChoice> {
    let choice = |kind: &AlertKind| AlertChoice {
        name: kind.name(),
        label: alert_label(*kind),
        hint: alert_hint(*kind),
        is_checked: checked.contains(kind),
    };
    kinds.iter().map(choice).collect()
}

const fn alert_hint(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::Paused => "Every pause, at most one alert per key per minute.",
        AlertKind::Resumed => "After a pause.",
        AlertKind::NearBurstLimit => "At 80% of the requests in 60 seconds, once per key per hour.",
        AlertKind::NearDailyLimit => "At 80%, once per key per day.",
        AlertKind::DailyLimitReached => "Requests are rejected until 00:00 UTC. Once per key per day.",
        AlertKind::Created => "A new key.",
        AlertKind::Rotated => "A key has a new secret.",
        AlertKind::Deleted => "A key is gone for good.",
        AlertKind::Expiring => "Three days before a key expires.",
        AlertKind::Test => "",
    }
}

const fn kind_label(kind: AlertChannelKind) -> &'static str {
    match kind {
        AlertChannelKind::Webhook => "Webhook",
        AlertChannelKind::Slack => "Slack",
    }
}

impl Portal {
    pub(crate) fn destination_policy(&self) -> DestinationPolicy {
        DestinationPolicy::new(&self.settings.alerts.allowed_networks)
    }
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    let input =
        ChannelInput { kind: AlertChannelKind::Webhook, url: String::new(), alerts: AlertKind::CHOICES.to_vec() };
    alerts_page(&portal, &member, input, None).await
}

async fn alerts_page(
    portal: &Portal,
    member: &CurrentMember,
    input: ChannelInput,
    form_error: Option<String>,
) -> Result<Response, PortalError> {
    let account = &member.account;
    let email_alerts = portal.store.accounts().email_alerts(account.id).await?;
    let channels = portal.store.alert_channels().list(account.id, None).await?;
    let channels_max = portal.settings.alerts.channels_per_account_max;
    let has_room = channels.len() < usize::try_from(channels_max).unwrap_or(usize::MAX);
    let new_channel = has_room.then(|| NewChannelForm {
        form_token: form_token(),
        is_slack: input.kind == AlertChannelKind::Slack,
        choices: alert_choices(&AlertKind::CHOICES, &input.alerts),
        url: input.url,
        form_error,
    });
    Ok(render_page(&AlertsPage {
        frame: member.frame(portal, "Alerts", Tab::Account),
        email: account.email.clone(),
        email_enabled: portal.settings.email_enabled,
        email_choices: alert_choices(&EMAIL_ALERTS, &email_alerts),
        channels: channels.iter().map(channel_item).collect(),
        channels_max,
        new_channel,
    }))
}

fn channel_item(channel: &AlertChannel) -> AlertChannelItem {
    AlertChannelItem {
        id: channel.id,
        kind: kind_label(channel.kind),
        origin: Url::parse(&channel.url).map(|url| url.origin().ascii_serialization()).unwrap_or_default(),
        alert_count: channel.alerts.len(),
        failing_since: channel.failing_since_s.map(time::format_minute),
        is_off: channel.off_since_s.is_some(),
    }
}

pub(crate) async fn save_email_alerts(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    portal.store.accounts().set_email_alerts(member.account.id, &checked_alerts(&form)).await?;
    Ok(redirect_with_notice(PAGE, "alerts"))
}

pub(crate) async fn create_channel(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    member.require_recent(PAGE)?;
    let input = ChannelInput::read(&form);
    let url = match input.check(&portal) {
        Ok(url) => url,
        Err(error) => return alerts_page(&portal, &member, input, Some(error)).await,
    };
    portal.record_key_action(&member)?;
    if !portal.use_form_once(&member, &form).await? {
        return Ok(redirect_with_notice(PAGE, "channel-before"));
    }
    let (secret, channels_max) = (random_secret(), portal.settings.alerts.channels_per_account_max);
    let channels = portal.store.alert_channels();
    let created =
        channels.create(member.account.id, input.kind, url.as_str(), &input.alerts, &secret, channels_max).await;
    match (created, input.kind) {
        (Ok(id), AlertChannelKind::Slack) => Ok(redirect_with_notice(&format!("{PAGE}/{id}"), "channel-added")),
        (Ok(id), AlertChannelKind::Webhook) => {
            let channel = find_channel(&portal, &member, id).await?;
            channel_page(&portal, &member, channel, Some(&secret), None).await
        }
        (Err(StoreError::Refused(StoreRefusal::ChannelLimitReached)), _) => {
            Ok(redirect_with_notice(PAGE, "channel-limit"))
        }
        (Err(error), _) => Err(error.into()),
    }
}

pub(crate) fn random_secret() -> [u8; 32] {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).expect("the system provides random bytes");
    secret
}

async fn find_channel(portal: &Portal, member: &CurrentMember, id: i64) -> Result<AlertChannel, PortalError> {
    let found = portal.store.alert_channels().list(member.account.id, Some(id)).await?;
    found.into_iter().next().ok_or(PortalError::NotFound)
}

fn parse_id(text: &str) -> Result<i64, PortalError> {
    text.parse().map_err(|_| PortalError::NotFound)
}

pub(crate) async fn show_channel(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let channel = find_channel(&portal, &member, parse_id(&id)?).await?;
    channel_page(&portal, &member, channel, None, None).await
}

async fn channel_page(
    portal: &Portal,
    member: &CurrentMember,
    channel: AlertChannel,
    new_secret: Option<&[u8; 32]>,
    form_error: Option<String>,
) -> Result<Response, PortalError> {
    let deliveries = portal.store.alert_channels().deliveries(member.account.id, channel.id, DELIVERIES_MAX).await?;
    let kind = kind_label(channel.kind);
    Ok(render_page(&AlertChannelPage {
        frame: member.frame(portal, kind, Tab::Account),
        id: channel.id,
        kind,
        is_slack: channel.kind == AlertChannelKind::Slack,
        url: channel.url,
        choices: alert_choices(&AlertKind::CHOICES, &channel.alerts),
        form_error,
        new_secret: new_secret.map(|secret| format_secret(secret)),
        form_token: form_token(),
        previous_until: channel.previous_until_s.map(time::format_minute),
        pending: channel.pending,
        failing_since: channel.failing_since_s.map(time::format_minute),
        off_since: channel.off_since_s.map(time::format_minute),
        deliveries: deliveries.into_iter().map(delivery_row).collect(),
    }))
}

fn delivery_row(delivery: AlertDelivery) -> DeliveryRow {
    let (badge, next_attempt_s) = match delivery.state {
        AlertDeliveryState::Delivered(_) => (DeliveryBadge::Delivered, None),
        AlertDeliveryState::Pending(next_attempt_s) => (DeliveryBadge::Pending, Some(next_attempt_s)),
        AlertDeliveryState::Failed => (DeliveryBadge::Failed, None),
    };
    DeliveryRow {
        id: delivery.id,
        message_id: webhook_id(delivery.message_id),
        label: alert_label(delivery.kind),
        key_name: delivery.key_name,
        created_at: time::format_second(delivery.created_s),
        badge,
        attempts: delivery.attempts,
        outcome: delivery.outcome.unwrap_or_default(),
        next_attempt_at: next_attempt_s.map(time::format_second),
    }
}

pub(crate) async fn update_channel(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let mut channel = find_channel(&portal, &member, parse_id(&id)?).await?;
    let page = format!("{PAGE}/{}", channel.id);
    member.require_recent(&page)?;
    let input = ChannelInput::read(&form);
    match input.check(&portal) {
        Ok(url) => {
            portal.record_key_action(&member)?;
            portal
                .store
                .alert_channels()
                .update(member.account.id, channel.id, Some(url.as_str()), Some(&input.alerts))
                .await?;
            Ok(redirect_with_notice(&page, "channel-saved"))
        }
        Err(error) => {
            (channel.url, channel.alerts) = (input.url, input.alerts);
            channel_page(&portal, &member, channel, None, Some(error)).await
        }
    }
}

pub(crate) async fn rotate_secret(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let id = parse_id(&id)?;
    let page = format!("{PAGE}/{id}");
    member.require_recent(&page)?;
    portal.record_key_action(&member)?;
    if !portal.use_form_once(&member, &form).await? {
        return Ok(redirect_with_notice(&page, "channel-before"));
    }
    let secret = random_secret();
    portal.store.alert_channels().rotate_secret(member.account.id, id, &secret).await?;
    let channel = find_channel(&portal, &member, id).await?;
    channel_page(&portal, &member, channel, Some(&secret), None).await
}

pub(crate) async fn turn_on(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let id = parse_id(&id)?;
    portal.record_key_action(&member)?;
    portal.store.alert_channels().turn_on(member.account.id, id).await?;
    Ok(redirect_with_notice(&format!("{PAGE}/{id}"), "channel-on"))
}

pub(crate) async fn send_test(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let id = parse_id(&id)?;
    portal.record_key_action(&member)?;
    portal.store.alert_channels().queue_test(member.account.id, id).await?;
    Ok(redirect_with_notice(&format!("{PAGE}/{id}"), "alert-queued"))
}

pub(crate) async fn redeliver(
    State(portal): State<Arc<Portal>>,
    Path((id, delivery)): Path<(String, String)>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let id = parse_id(&id)?;
    portal.record_key_action(&member)?;
    portal.store.alert_channels().redeliver(member.account.id, id, parse_id(&delivery)?).await?;
    Ok(redirect_with_notice(&format!("{PAGE}/{id}"), "alert-queued"))
}

pub(crate) async fn delete_channel(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    portal.store.alert_channels().delete(member.account.id, parse_id(&id)?).await?;
    Ok(redirect_with_notice(PAGE, "channel-deleted"))
}
