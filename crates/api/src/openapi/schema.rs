//! The schemas of response bodies. They allow additional properties, so that a client generated from the document
//! accepts a field that a later version adds.

use ipseity_domain::{Field, FieldSet, KeyStatus, Scope};
use serde_json::{Map, Value, json};

use crate::key_status::body::EXPIRED;
use crate::lookup::renderer::example::example_body;
use crate::operation::API_VERSION;
use crate::tickets::bounds::{LIFETIME_S_DEFAULT, LIFETIME_S_MAX, LIFETIME_S_MIN, USES_DEFAULT, USES_MAX};

/// The component schemas of the document.
pub(super) fn components() -> Value {
    let demo: Vec<_> = FieldSet::Demo.fields().map(Field::name).collect();
    json!({
        "IpResponse": lookup_schema(
            FieldSet::Scope(Scope::Full),
            &[Field::Status.name()],
            "Response to a lookup. The scope decides which fields are present. Unknown values are null.",
        ),
        "DemoResponse": lookup_schema(FieldSet::Demo, &demo, "Response to a demo request. All fields are always present."),
        "KeyStatus": key_status_schema(),
        "ErrorResponse": error_schema(),
        "TicketOptions": ticket_options_schema(),
        "TicketResponse": ticket_schema(),
        "PairResponse": pair_schema(),
        "Meta": meta_schema(),
    })
}

fn lookup_schema(field_set: FieldSet, required: &[&str], description: &str) -> Value {
    let example = example_body(FieldSet::Scope(Scope::Full));
    let property = |field: Field| {
        let name = field.name();
        let mut schema =
            json!({ "description": field.description(), "x-scope": field.scope().name(), "examples": [example[name]] });
        if field == Field::Status {
            schema["const"] = json!("success");
            schema["type"] = json!("string");
        } else {
            schema["type"] = json!([field.json_type(), "null"]);
        }
        (name.to_owned(), schema)
    };
    let properties: Map<String, Value> = field_set.fields().map(property).collect();
    json!({
        "type": "object", "description": description, "required": required, "properties": properties,
    })
}

fn error_schema() -> Value {
    let link = |meaning: &str| json!({ "type": "string", "format": "uri", "description": meaning });
    json!({
        "type": "object",
        "description": "The body of every error.",
        "required": ["error", "message", "docs"],
        "properties": {
            "error": { "type": "string", "pattern": "^[a-z]+(_[a-z]+)*$", "description": "Error code in snake case." },
            "message": { "type": "string", "description": "What happened, why, and what to do about it." },
            "docs": link("Documentation of this error."),
            "enterprise": link("Page to request higher limits. Only if the daily quota is reached."),
            "signup": link("Page to create a key. Only if the demo quota is reached."),
        },
    })
}

fn key_status_schema() -> Value {
    let number = |meaning: &str| json!({ "type": "integer", "minimum": 0, "description": meaning });
    let count = |meaning: &str| json!({ "type": ["integer", "null"], "minimum": 0, "description": meaning });
    let list = |meaning: &str| json!({ "type": "array", "items": { "type": "string" }, "description": meaning });
    json!({
        "type": "object",
        "description": "Status of a key. Tickets, requests with an Origin header, and keys with allowed origins get only scope and state.",
        "required": ["status", "scope", "state"],
        "properties": {
            "status": { "type": "string", "const": "success", "description": "Always `success`." },
            "scope": { "type": "string", "enum": Scope::ALL.map(Scope::name), "description": "Scope of the key." },
            "state": { "type": "string", "enum": ["active", "paused", "inactive", EXPIRED], "description": "State of the key." },
            "key_status": {
                "type": "string", "enum": KeyStatus::ALL.map(KeyStatus::name),
                "description": "What the next request can expect: the status that the portal and emails show.",
            },
            "limits": {
                "type": "object", "required": ["day", "burst"], "description": "Limits of the key.",
                "properties": { "day": number("Requests per day."), "burst": number("Requests in any 60 seconds.") },
            },
            "usage": {
                "type": "object", "required": ["day", "burst"],
                "description": "Requests that count toward the limits. Null while they are not available.",
                "properties": { "day": count("Requests today, in UTC."), "burst": count("Requests in the last 60 seconds.") },
            },
            "expires_at": {
                "type": ["string", "null"], "format": "date-time", "description": "When the key expires, or null.",
            },
            "restrictions": {
                "type": "object", "required": ["origins", "networks", "caller_limit", "tickets_only"],
                "description": "Who may use the key. Empty lists allow everyone.",
                "properties": {
                    "origins": list("Allowed origins of web pages."),
                    "networks": list("Allowed networks."),
                    "caller_limit": count("Requests per minute of one caller at each node, or null."),
                    "tickets_only": { "type": "boolean", "description": "Whether the key accepts only tickets." },
                },
            },
        },
    })
}

fn ticket_options_schema() -> Value {
    json!({
        "type": "object",
        "description": "Options of a ticket. Null is the default.",
        "additionalProperties": false,
        "properties": {
            "origin": { "type": ["string", "null"], "description": "Origin whose pages may use the ticket. Without it, any client may." },
            "scope": { "type": ["string", "null"], "enum": ["ip", "geo", "full", null], "description": "Narrows the key's scope." },
            "lifetime_s": {
                "type": ["integer", "null"], "minimum": LIFETIME_S_MIN, "maximum": LIFETIME_S_MAX, "default": LIFETIME_S_DEFAULT,
                "description": "Seconds until the ticket expires.",
            },
            "uses": {
                "type": ["integer", "null"], "minimum": 1, "maximum": USES_MAX, "default": USES_DEFAULT,
                "description": "Number of lookups. Each node counts by itself.",
            },
        },
    })
}

fn ticket_schema() -> Value {
    json!({
        "type": "object",
        "description": "A ticket.",
        "required": ["status", "ticket", "scope", "origin", "uses", "expires_in_s", "expires_at"],
        "properties": {
            "status": { "type": "string", "const": "success", "description": "Always `success`." },
            "ticket": { "type": "string", "pattern": "^ipt_[A-Za-z0-9_-]+$", "description": "Send it in place of the key." },
            "scope": { "type": "string", "enum": Scope::ALL.map(Scope::name), "description": "Scope of the ticket." },
            "origin": { "type": ["string", "null"], "description": "Origin whose pages may use it, or null for any client." },
            "uses": { "type": "integer", "minimum": 1, "description": "Number of lookups at each node." },
            "expires_in_s": { "type": "integer", "minimum": 1, "description": "Seconds until it expires." },
            "expires_at": { "type": "string", "format": "date-time", "description": "When it expires." },
        },
    })
}

fn pair_schema() -> Value {
    json!({
        "type": "object",
        "description": "A token with the address of the connection.",
        "required": ["token", "family", "expires_in_s"],
        "properties": {
            "token": { "type": "string", "pattern": "^[A-Za-z0-9_-]+$", "description": "Send it in `Ipseity-Pair`." },
            "family": { "type": "string", "enum": ["ipv4", "ipv6"], "description": "Address family of the connection." },
            "expires_in_s": { "type": "integer", "minimum": 1, "description": "Seconds until the token expires." },
        },
    })
}

fn meta_schema() -> Value {
    let text = |meaning: &str| json!({ "type": "string", "description": meaning });
    let nullable_text = |meaning: &str| json!({ "type": ["string", "null"], "description": meaning });
    let nullable_url = |meaning: &str| json!({ "type": ["string", "null"], "format": "uri", "description": meaning });
    json!({
        "type": "object",
        "description": "Version of the service and sources of its data.",
        "required": ["version", "interface", "ipv4_url", "ipv6_url", "databases", "notices"],
        "properties": {
            "version": text("Version of the service."),
            "interface": { "type": "string", "const": API_VERSION, "description": "Version of this API." },
            "ipv4_url": nullable_url("URL of the service over IPv4 only. Null if there is none."),
            "ipv6_url": nullable_url("URL of the service over IPv6 only. Null if there is none."),
            "databases": {
                "type": "array",
                "description": "Geo databases in use, in order of precedence.",
                "items": {
                    "type": "object",
                    "required": ["type", "kind", "built_at", "age_days", "attribution", "attribution_url"],
                    "properties": {
                        "type": text("Type, as named by the provider."),
                        "kind": text("Kind of data."),
                        "built_at": { "type": "string", "format": "date-time", "description": "Build time." },
                        "age_days": { "type": "integer", "minimum": 0, "description": "Whole days since the build time." },
                        "attribution": nullable_text("Attribution that the license requires."),
                        "attribution_url": nullable_text("Link of the attribution."),
                    },
                },
            },
            "notices": {
                "type": "array", "items": { "type": "string" },
                "description": "Attributions of the data that is built into the service.",
            },
        },
    })
}
