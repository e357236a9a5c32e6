//! The pages of alerts.

use askama::Template;

use crate::view::filters;
use crate::view::frame::PageFrame;

/// A checkbox for a kind of alert.
pub(crate) struct AlertChoice {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) is_checked: bool,
}

/// A webhook or Slack channel in the list.
pub(crate) struct AlertChannelItem {
    pub(crate) id: i64,
    /// `Webhook` or `Slack`.
    pub(crate) kind: &'static str,
    /// Where it leads, without a path, which can be a secret.
    pub(crate) origin: String,
    pub(crate) alert_count: usize,
    /// Since when deliveries fail.
    pub(crate) failing_since: Option<String>,
    /// Whether it gets no alerts, because its receiver is gone.
    pub(crate) is_off: bool,
}

/// The form for a new channel.
pub(crate) struct NewChannelForm {
    /// Makes a repeated form have no effect.
    pub(crate) form_token: String,
    pub(crate) is_slack: bool,
    /// The URL as typed.
    pub(crate) url: String,
    pub(crate) choices: Vec<AlertChoice>,
    pub(crate) form_error: Option<String>,
}

/// `/account/alerts`
#[derive(Template)]
#[template(path = "alerts.html")]
pub(crate) struct AlertsPage {
    pub(crate) frame: PageFrame,
    pub(crate) email: String,
    /// Whether this service sends email.
    pub(crate) email_enabled: bool,
    pub(crate) email_choices: Vec<AlertChoice>,
    pub(crate) channels: Vec<AlertChannelItem>,
    pub(crate) channels_max: u32,
    /// None if the account has as many channels as it may have.
    pub(crate) new_channel: Option<NewChannelForm>,
}

/// Whether an alert arrived.
pub(crate) enum DeliveryBadge {
    Delivered,
    Pending,
    Failed,
}

impl DeliveryBadge {
    fn class(&self) -> &'static str {
        match self {
            Self::Delivered => "active",
            Self::Pending => "near-limit",
            Self::Failed => "limit-reached",
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Self::Delivered => "Delivered",
            Self::Pending => "Pending",
            Self::Failed => "Failed",
        }
    }

    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending)
    }
}

/// A row of the delivery log.
pub(crate) struct DeliveryRow {
    pub(crate) id: i64,
    /// The id that the receiver gets.
    pub(crate) message_id: String,
    pub(crate) label: &'static str,
    /// Empty for a test.
    pub(crate) key_name: String,
    pub(crate) created_at: String,
    pub(crate) badge: DeliveryBadge,
    pub(crate) attempts: i32,
    /// Of the last attempt, such as `HTTP 503`.
    pub(crate) outcome: String,
    /// When the next attempt is made.
    pub(crate) next_attempt_at: Option<String>,
}

/// `/account/alerts/{id}`
#[derive(Template)]
#[template(path = "alert_channel.html")]
pub(crate) struct AlertChannelPage {
    pub(crate) frame: PageFrame,
    pub(crate) id: i64,
    /// `Webhook` or `Slack`.
    pub(crate) kind: &'static str,
    pub(crate) is_slack: bool,
    pub(crate) url: String,
    pub(crate) choices: Vec<AlertChoice>,
    pub(crate) form_error: Option<String>,
    /// A new secret, which is shown once.
    pub(crate) new_secret: Option<String>,
    /// Makes a repeated rotation have no effect.
    pub(crate) form_token: String,
    /// Until when the previous secret signs too.
    pub(crate) previous_until: Option<String>,
    pub(crate) pending: i64,
    pub(crate) failing_since: Option<String>,
    /// Since when it gets no alerts, because its receiver is gone.
    pub(crate) off_since: Option<String>,
    pub(crate) deliveries: Vec<DeliveryRow>,
}
