//! The schemas and examples of the management API. Responses allow additional properties, so that a client generated from the
//! document accepts a field that a later version adds.

use ipseity_domain::restrictions::{CALLER_LIMIT_MAX, NETWORKS_MAX, ORIGINS_MAX};
use ipseity_domain::{KeyStatus, Scope};
use ipseity_store::{AlertChannelKind, AlertKind};
use serde_json::{Map, Value, json};

use super::keys::OVERLAP_S_MAX;

pub(super) const EXAMPLE_KEY_ID: &str = "7hQ2mZx9Lb";
/// Not a valid key.
pub(super) const EXAMPLE_SECRET: &str = "ips_7hQ2mZx9LbExampleExampleExampleExampleExam000000";
pub(super) const EXAMPLE_WEBHOOK_SECRET: &str = "whsec_ZXhhbXBsZSBleGFtcGxlIGV4YW1wbGUgZXhhbXBsZQ==";
const EXAMPLE_TIME: &str = "2026-11-15T14:03:22Z";

fn text(meaning: &str) -> Value {
    json!({ "type": "string", "description": meaning })
}

fn flag(meaning: &str) -> Value {
    json!({ "type": "boolean", "description": meaning })
}

fn count(meaning: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": meaning })
}

fn time(meaning: &str) -> Value {
    json!({ "type": "string", "format": "date-time", "description": meaning })
}

fn optional_time(meaning: &str) -> Value {
    json!({ "type": ["string", "null"], "format": "date-time", "description": meaning })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn list_of(name: &str, meaning: &str) -> Value {
    json!({ "type": "array", "items": reference(name), "description": meaning })
}

/// A response, of which every property is present.
fn object(meaning: &str, properties: Value) -> Value {
    let required: Vec<_> = properties.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
    json!({ "type": "object", "description": meaning, "required": required, "properties": properties })
}

fn response(meaning: &str, properties: Value) -> Value {
    let status = json!({ "type": "string", "const": "success", "description": "Always `success`." });
    let mut all = Map::from_iter([("status".to_owned(), status)]);
    all.extend(properties.as_object().cloned().unwrap_or_default());
    object(meaning, all.into())
}

/// The body of a request.
fn request(meaning: &str, required: &[&str], properties: Value) -> Value {
    json!({
        "type": "object", "description": meaning, "required": required, "additionalProperties": false,
        "properties": properties,
    })
}

fn name() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 100, "description": "Name, without control characters." })
}

fn alerts() -> Value {
    json!({
        "type": "array", "minItems": 1, "description": "Kinds of alerts that it receives.",
        "items": { "type": "string", "enum": AlertKind::CHOICES.map(AlertKind::name) },
    })
}

fn applied() -> Value {
    flag(
        "Whether requests see the change already. False while Redis is unavailable: they see it as soon as it is back.",
    )
}

fn url() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 2000, "description": "Where alerts are sent. Public, with https." })
}

pub(super) fn components() -> Value {
    json!({
        "Key": key(),
        "KeyRestrictions": restrictions(),
        "KeyList": response("The keys of the account.", json!({
            "keys": list_of("Key", "Oldest first."), "keys_max": count("Maximum number of keys."),
        })),
        "KeyResponse": response("A key.", json!({ "key": reference("Key") })),
        "ChangedKey": response("A key after a change.", json!({ "applied": applied(), "key": reference("Key") })),
        "KeyWithSecret": response("A key with a new secret.", json!({
            "applied": applied(), "key": reference("Key"),
            "secret": { "type": "string", "pattern": "^ips_[0-9A-Za-z]{48}$", "description": "The complete API key. Shown once." },
        })),
        "Deleted": response("The key is deleted.", json!({ "applied": applied() })),
        "NewKey": request("A new key.", &["name", "scope"], json!({
            "name": name(),
            "scope": { "type": "string", "enum": Scope::ALL.map(Scope::name), "description": "Scope of the key." },
            "restrictions": { "oneOf": [reference("KeyRestrictions"), { "type": "null" }], "description": "Who may use the key." },
        })),
        "KeyUpdate": request("Changes of a key. What is missing or null stays as it is.", &[], json!({
            "name": { "type": ["string", "null"], "minLength": 1, "maxLength": 100, "description": "New name." },
            "restrictions": {
                "oneOf": [reference("KeyRestrictions"), { "type": "null" }], "description": "Replace all restrictions of the key.",
            },
            "is_active": { "type": ["boolean", "null"], "description": "False deactivates the key, true reactivates it." },
        })),
        "KeyRotation": request("How to rotate a key.", &["overlap_s"], json!({
            "overlap_s": {
                "type": "integer", "minimum": 0, "maximum": OVERLAP_S_MAX,
                "description": "Seconds for which the previous secret stays valid. Not at all if the key is deactivated.",
            },
        })),
        "KeyPause": pause(),
        "PauseList": response("The newest 50 pauses of a key.", json!({ "pauses": list_of("KeyPause", "Newest first.") })),
        "Usage": response("Requests of the last 30 days.", json!({
            "from": { "type": "string", "format": "date", "description": "First day, in UTC." },
            "to": { "type": "string", "format": "date", "description": "Today, in UTC." },
            "days": list_of("KeyDay", "Each key and day with requests, oldest first."),
        })),
        "KeyDay": key_day(),
        "Channel": channel(),
        "ChannelList": response("The channels of alerts.", json!({
            "channels": list_of("Channel", "Oldest first."), "channels_max": count("Maximum number of channels."),
        })),
        "ChannelResponse": response("A channel of alerts.", json!({ "channel": reference("Channel") })),
        "ChannelWithSecret": channel_with_secret(),
        "ChannelDeleted": response("The channel is deleted.", json!({})),
        "NewChannel": request("A new channel of alerts.", &["kind", "url", "alerts"], json!({
            "kind": { "type": "string", "enum": AlertChannelKind::ALL.map(AlertChannelKind::name), "description": "Kind of channel." },
            "url": url(),
            "alerts": alerts(),
        })),
        "ChannelUpdate": request("Changes of a channel. What is missing or null stays as it is.", &[], json!({
            "url": { "type": ["string", "null"], "minLength": 1, "maxLength": 2000, "description": "New URL." },
            "alerts": { "oneOf": [alerts(), { "type": "null" }], "description": "New kinds of alerts." },
        })),
    })
}

fn key() -> Value {
    object(
        "A key.",
        json!({
            "id": { "type": "string", "pattern": "^[0-9A-Za-z]{10}$", "description": "Id of the key. It is public and never changes." },
            "name": text("Name of the key."),
            "scope": { "type": "string", "enum": Scope::ALL.map(Scope::name), "description": "Scope of the key." },
            "state": { "type": "string", "enum": ["active", "paused", "inactive"], "description": "State of the key." },
            "key_status": {
                "type": "string", "enum": KeyStatus::ALL.map(KeyStatus::name),
                "description": "What the next request can expect: the status that the portal and emails show.",
            },
            "limits": object("Limits of the key.", json!({
                "day": count("Requests per day."), "burst": count("Requests in any 60 seconds."),
            })),
            "used_today": count("Requests today, in UTC, that count toward the daily limit."),
            "last_used_on": { "type": ["string", "null"], "format": "date", "description": "Last day with requests, in UTC." },
            "created_at": time("When it was created."),
            "previous_secret_until": optional_time("Until when the secret before a rotation is valid, or null."),
            "restrictions": reference("KeyRestrictions"),
            "pause": {
                "oneOf": [evidence("Why the key is paused."), { "type": "null" }],
                "description": "Why the key is paused, or null if it is not.",
            },
        }),
    )
}

fn restrictions() -> Value {
    let list = |meaning: &str, items_max: usize| json!({ "type": "array", "maxItems": items_max, "items": { "type": "string" }, "description": meaning });
    let limit = |meaning: &str, max: Value| {
        let mut schema = json!({ "type": ["integer", "null"], "minimum": 1, "description": meaning });
        if !max.is_null() {
            schema["maximum"] = max;
        }
        schema
    };
    json!({
        "type": "object",
        "description": "Who may use a key, and for how long. What is missing, empty or null restricts nothing.",
        "properties": {
            "origins": list("Allowed origins of web pages, such as `https://example.com`.", ORIGINS_MAX),
            "networks": list("Allowed networks, such as `198.51.100.0/24`.", NETWORKS_MAX),
            "expires_at": optional_time("When the key expires. In a request, it must be in the future."),
            "caller_limit": limit("Requests per minute of one caller at each node.", CALLER_LIMIT_MAX.into()),
            "daily_limit": limit("Requests per day, if that is less than the plan allows.", Value::Null),
            "tickets_only": flag("Whether the key accepts only tickets. Not together with origins."),
        },
    })
}

fn evidence_properties() -> Value {
    json!({
        "paused_at": time("When the key was paused."),
        "requests": count("Requests in the 60 seconds before."),
        "requests_per_second": {
            "type": "array", "items": { "type": "integer", "minimum": 0 },
            "description": "Requests in each of these seconds, oldest first.",
        },
    })
}

fn evidence(meaning: &str) -> Value {
    object(meaning, evidence_properties())
}

fn pause() -> Value {
    let mut properties = evidence_properties();
    properties["epoch"] = count("Number of the pause.");
    properties["is_current"] = flag("Whether the key is still paused by it.");
    properties["resumed_at"] = optional_time("When the key was resumed, or null.");
    properties["resumed_by"] =
        json!({ "type": ["string", "null"], "enum": ["owner", "operator", null], "description": "Who resumed it." });
    object("A pause and its evidence.", properties)
}

fn key_day() -> Value {
    let reasons = ["burst", "paused", "inactive", "day", "wrong_secret", "restricted"];
    let reason = |name: &str| (name.to_owned(), count("Rejected for this reason."));
    let rejected: Map<String, Value> = reasons.into_iter().map(reason).collect();
    object(
        "Requests of a key on a day.",
        json!({
            "day": { "type": "string", "format": "date", "description": "The day, in UTC." },
            "key": text("Id of the key."),
            "admitted": count("Admitted requests."),
            "rejected": object("Rejected requests by reason.", rejected.into()),
        }),
    )
}

fn channel() -> Value {
    object(
        "A webhook or a Slack channel.",
        json!({
            "id": { "type": "integer", "format": "int64", "description": "Id of the channel." },
            "kind": { "type": "string", "enum": AlertChannelKind::ALL.map(AlertChannelKind::name), "description": "Kind of channel." },
            "url": text("Where alerts are sent. Of Slack, only scheme and host, because its URL is a secret."),
            "alerts": alerts(),
            "pending": count("Alerts that are not delivered yet."),
            "failing_since": optional_time("Since when deliveries fail, or null."),
            "off_since": optional_time("Since when the channel is off, because its receiver answered that it is gone, or null."),
            "previous_secret_until": optional_time("Until when the secret before a rotation signs too, or null."),
        }),
    )
}

fn channel_with_secret() -> Value {
    let mut schema = response("A channel with a new signing secret.", json!({ "channel": reference("Channel") }));
    schema["properties"]["secret"] = json!({
        "type": "string", "pattern": "^whsec_[0-9A-Za-z+/=]+$",
        "description": "The signing secret. Shown once. Missing for Slack, which has none.",
    });
    schema
}

pub(super) fn new_key_example() -> Value {
    json!({ "name": "shop", "scope": "geo", "restrictions": { "networks": ["198.51.100.0/24"], "daily_limit": 5000 } })
}

pub(super) fn new_channel_example() -> Value {
    json!({ "kind": "webhook", "url": "https://example.com/hooks/ipseity", "alerts": ["paused", "near_daily_limit"] })
}

pub(super) fn key_example() -> Value {
    json!({
        "id": EXAMPLE_KEY_ID, "name": "shop", "scope": "geo", "state": "active", "key_status": "active",
        "limits": { "day": 5000, "burst": 300 }, "used_today": 42, "last_used_on": "2026-11-15",
        "created_at": EXAMPLE_TIME, "previous_secret_until": null,
        "restrictions": {
            "origins": [], "networks": ["198.51.100.0/24"], "expires_at": null, "caller_limit": null, "daily_limit": 5000,
            "tickets_only": false,
        },
        "pause": null,
    })
}

pub(super) fn pause_example() -> Value {
    let mut per_second = vec![2; 59];
    per_second.push(183);
    json!({
        "paused_at": EXAMPLE_TIME, "requests": 301, "requests_per_second": per_second, "epoch": 3, "is_current": false,
        "resumed_at": "2026-11-15T14:20:00Z", "resumed_by": "owner",
    })
}

pub(super) fn usage_example() -> Value {
    json!({
        "status": "success", "from": "2026-10-17", "to": "2026-11-15",
        "days": [{
            "day": "2026-11-15", "key": EXAMPLE_KEY_ID, "admitted": 42,
            "rejected": { "burst": 0, "paused": 0, "inactive": 0, "day": 0, "wrong_secret": 1, "restricted": 0 },
        }],
    })
}

pub(super) fn channel_example() -> Value {
    json!({
        "id": 7, "kind": "webhook", "url": "https://example.com/hooks/ipseity", "alerts": ["paused", "near_daily_limit"],
        "pending": 0, "failing_since": null, "off_since": null, "previous_secret_until": null,
    })
}
