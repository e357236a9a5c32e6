//! What alerts say: a sentence for people, and JSON for programs.

use ipseity_domain::KeyStatus;
use ipseity_store::{AlertKind, QueuedAlert};
use jiff::Timestamp;
use serde::Serialize;

use crate::time;
use crate::view::filters::with_commas;

/// The kind of an alert in headings, with the words of the key's status where there is one.
pub(crate) const fn alert_label(kind: AlertKind) -> &'static str {
    match kind {
        AlertKind::Paused => KeyStatus::Paused.label(),
        AlertKind::Resumed => "Resumed",
        AlertKind::NearBurstLimit => KeyStatus::NearBurstLimit.label(),
        AlertKind::NearDailyLimit => KeyStatus::NearDailyLimit.label(),
        AlertKind::DailyLimitReached => KeyStatus::DailyLimitReached.label(),
        AlertKind::Created => "Created",
        AlertKind::Rotated => "Rotated",
        AlertKind::Deleted => "Deleted",
        AlertKind::Expiring => "Expires soon",
        AlertKind::Test => "Test",
    }
}

/// The heading of an alert.
pub(crate) fn headline(alert: &QueuedAlert) -> String {
    if alert.kind == AlertKind::Test {
        return "Ipseity: Test alert".to_owned();
    }
    format!("Ipseity key {}: {}", alert.details.name, alert_label(alert.kind))
}

/// What happened.
pub(crate) fn sentence(alert: &QueuedAlert) -> String {
    let details = &alert.details;
    let (burst_limit, daily_limit) = (number(details.burst_limit), number(details.daily_limit));
    let text = match alert.kind {
        AlertKind::Test => return "This is a test. Alerts about your keys will look like this.".to_owned(),
        AlertKind::Paused => format!(
            "made more than {burst_limit} requests in 60 seconds and was paused. Its requests are rejected until you resume it."
        ),
        AlertKind::Resumed => format!("was resumed{}.", by(details.actor.as_deref())),
        AlertKind::NearBurstLimit => {
            format!(
                "made at least 80% of its {burst_limit} requests in 60 seconds. With more than {burst_limit}, it is paused."
            )
        }
        AlertKind::NearDailyLimit => format!(
            "has used {} of its {daily_limit} requests for {}. The daily limit resets at 00:00 UTC.",
            number(details.used),
            details.day
        ),
        AlertKind::DailyLimitReached => format!(
            "has used all {daily_limit} requests for {}. Its requests are rejected until the daily limit resets at 00:00 UTC.",
            details.day
        ),
        AlertKind::Created => format!("was created{}.", by(details.actor.as_deref())),
        AlertKind::Rotated => format!("has a new secret, set{}.", by(details.actor.as_deref())),
        AlertKind::Deleted => format!("was deleted{}.", by(details.actor.as_deref())),
        AlertKind::Expiring => {
            let expiry = details.expires_at_s.map(time::format_minute).unwrap_or_default();
            format!("expires on {expiry}. Then its requests are rejected.")
        }
    };
    format!("The key \"{}\" (ips_{}) {text}", details.name, alert.key_id)
}

fn by(actor: Option<&str>) -> &'static str {
    match actor {
        Some("owner") => " by its owner",
        Some("operator") => " by the operator of the service",
        _ => "",
    }
}

fn number(count: i64) -> String {
    with_commas(&count.to_string())
}

/// The page that an alert is about: of a pause, its evidence. None if there is none any more.
pub(crate) fn page_url(alert: &QueuedAlert, base_url: &str) -> Option<String> {
    let key_url = format!("{base_url}/keys/{}", alert.key_id);
    match (alert.kind, alert.details.burst_epoch) {
        (AlertKind::Deleted | AlertKind::Test, _) => None,
        (AlertKind::Paused, Some(epoch)) => Some(format!("{key_url}/pauses/{epoch}")),
        _ => Some(key_url),
    }
}

/// The body of a webhook. Its form is documented, so fields can be added, but not changed.
#[derive(Serialize)]
struct WebhookBody<'a> {
    r#type: String,
    timestamp: String,
    data: WebhookData<'a>,
}

#[derive(Serialize)]
struct WebhookData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_name: Option<&'a str>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    daily_limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst_limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'a str>,
}

/// The body of a webhook. The same for all attempts.
pub(super) fn webhook_body(alert: &QueuedAlert, base_url: &str) -> Vec<u8> {
    let (kind, details) = (alert.kind, &alert.details);
    let is_test = kind == AlertKind::Test;
    let is_daily = matches!(kind, AlertKind::NearDailyLimit | AlertKind::DailyLimitReached);
    let is_burst = matches!(kind, AlertKind::Paused | AlertKind::NearBurstLimit);
    let body = WebhookBody {
        r#type: if is_test { "test".to_owned() } else { format!("key.{}", kind.name()) },
        timestamp: Timestamp::from_millisecond(alert.created_ms).map(|at| at.to_string()).unwrap_or_default(),
        data: WebhookData {
            key_id: (!is_test).then(|| format!("ips_{}", alert.key_id)),
            key_name: (!is_test).then_some(&details.name),
            message: sentence(alert),
            url: page_url(alert, base_url),
            day: is_daily.then_some(&details.day),
            used: is_daily.then_some(details.used),
            daily_limit: is_daily.then_some(details.daily_limit),
            requests: details.requests.filter(|_| is_burst),
            burst_limit: is_burst.then_some(details.burst_limit),
            expires_at: details.expires_at_s.filter(|_| kind == AlertKind::Expiring).map(time::format_rfc3339),
            actor: details.actor.as_deref(),
        },
    };
    serde_json::to_vec(&body).expect("strings and numbers serialize")
}

/// The body of a message to Slack.
pub(super) fn slack_body(alert: &QueuedAlert, base_url: &str) -> Vec<u8> {
    let label = if alert.kind == AlertKind::Paused { "Open the pause" } else { "Open the key" };
    let link = page_url(alert, base_url).map(|url| format!("\n<{url}|{label}>")).unwrap_or_default();
    let text = format!("*{}*\n{}{link}", escape_slack(&headline(alert)), escape_slack(&sentence(alert)));
    serde_json::json!({ "text": text }).to_string().into_bytes()
}

/// Owners choose names of keys. Unescaped, `<!channel>` would notify everyone.
fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use ipseity_store::{AlertDetails, AlertTarget};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn alert(kind: AlertKind) -> QueuedAlert {
        QueuedAlert {
            id: 1,
            channel_id: 2,
            message_id: Uuid::nil(),
            kind,
            key_id: "0123456789".to_owned(),
            details: AlertDetails {
                name: "<!channel> & shop".to_owned(),
                day: "2026-11-19".to_owned(),
                used: 8_000,
                daily_limit: 10_000,
                burst_limit: 300,
                burst_epoch: Some(3),
                requests: Some(301),
                expires_at_s: Some(1_795_615_380),
                actor: Some("owner".to_owned()),
            },
            attempt: 1,
            created_ms: 1_795_000_000_123,
            target: AlertTarget::Slack { url: String::new() },
        }
    }

    fn webhook(kind: AlertKind) -> Value {
        serde_json::from_slice(&webhook_body(&alert(kind), "https://ip.example")).expect("JSON")
    }

    #[test]
    fn webhooks_name_the_event_and_its_numbers() {
        let paused = webhook(AlertKind::Paused);
        assert_eq!(paused["type"], "key.paused");
        assert_eq!(paused["timestamp"], "2026-11-18T11:06:40.123Z");
        let data = &paused["data"];
        assert_eq!(
            (&data["key_id"], &data["requests"], &data["burst_limit"]),
            (&json!("ips_0123456789"), &json!(301), &json!(300))
        );
        assert_eq!(data["url"], "https://ip.example/keys/0123456789/pauses/3");
        assert!(data.get("used").is_none());
        let near = webhook(AlertKind::NearDailyLimit);
        assert_eq!((&near["data"]["used"], &near["data"]["daily_limit"]), (&json!(8_000), &json!(10_000)));
        assert_eq!(webhook(AlertKind::Expiring)["data"]["expires_at"], "2026-11-25T14:03:00Z");
        assert!(webhook(AlertKind::Deleted)["data"].get("url").is_none());
        assert_eq!(webhook(AlertKind::Test)["type"], "test");
        assert!(webhook(AlertKind::Test)["data"].get("key_id").is_none());
    }

    #[test]
    fn slack_messages_cannot_contain_markup_of_the_name() {
        let body: Value =
            serde_json::from_slice(&slack_body(&alert(AlertKind::Paused), "https://ip.example")).expect("JSON");
        let text = body["text"].as_str().expect("text");
        assert!(text.contains("&lt;!channel&gt; &amp; shop") && !text.contains("<!"), "{text}");
        assert!(text.ends_with("<https://ip.example/keys/0123456789/pauses/3|Open the pause>"));
    }

    #[test]
    fn every_kind_has_a_sentence() {
        for kind in AlertKind::CHOICES {
            let text = sentence(&alert(kind));
            assert!(
                text.starts_with("The key \"<!channel> & shop\" (ips_0123456789) ") && text.ends_with('.'),
                "{text}"
            );
        }
    }
}
