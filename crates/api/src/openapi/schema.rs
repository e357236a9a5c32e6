//! The bodies, field by field.

use ipseity_domain::{Field, FieldSet, Scope};
use serde_json::{Map, Value, json};

use crate::meta::API_VERSION;
use crate::openapi::example;

/// The bodies as components of the document.
pub(super) fn components() -> Value {
    let demo: Vec<_> = FieldSet::Demo.fields().map(Field::name).collect();
    json!({
        "IpResponse": lookup_schema(
            FieldSet::Scope(Scope::Full),
            &[Field::Status.name()],
            "A lookup's answer. Which fields are there depends on the scope; a field that is there is null when nothing is known.",
        ),
        "DemoResponse": lookup_schema(FieldSet::Demo, &demo, "The demo's answer: always these fields."),
        "ErrorResponse": error_schema(),
        "Meta": meta_schema(),
    })
}

fn lookup_schema(field_set: FieldSet, required: &[&str], description: &str) -> Value {
    let example = example::body(FieldSet::Scope(Scope::Full));
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
        "additionalProperties": false,
    })
}

fn error_schema() -> Value {
    let link = |meaning: &str| json!({ "type": "string", "format": "uri", "description": meaning });
    json!({
        "type": "object",
        "description": "The body of every error.",
        "required": ["error", "message", "docs"],
        "properties": {
            "error": { "type": "string", "pattern": "^[a-z]+(_[a-z]+)*$", "description": "A code in snake case." },
            "message": { "type": "string", "description": "What happened, why, and what to do." },
            "docs": link("The section of the documentation about this error."),
            "enterprise": link("Where to ask for more; on the daily quota's 429 only."),
            "signup": link("Where to get a key; on the demo's 429 only."),
        },
        "additionalProperties": false,
    })
}

fn meta_schema() -> Value {
    let text = |meaning: &str| json!({ "type": "string", "description": meaning });
    let nullable_text = |meaning: &str| json!({ "type": ["string", "null"], "description": meaning });
    json!({
        "type": "object",
        "description": "What the service is and where its data comes from.",
        "required": ["version", "interface", "databases", "notices"],
        "properties": {
            "version": text("The service's own version."),
            "interface": { "type": "string", "const": API_VERSION, "description": "The version of this interface." },
            "databases": {
                "type": "array",
                "description": "The geo databases in use, in the order in which they are asked.",
                "items": {
                    "type": "object",
                    "required": ["type", "kind", "built_at", "age_days", "attribution", "attribution_url"],
                    "properties": {
                        "type": text("What its maker calls it."),
                        "kind": text("What it tells."),
                        "built_at": { "type": "string", "format": "date-time", "description": "When it was built." },
                        "age_days": { "type": "integer", "minimum": 0, "description": "Whole days since then." },
                        "attribution": nullable_text("The sentence that its licence asks for."),
                        "attribution_url": nullable_text("Where that sentence leads."),
                    },
                    "additionalProperties": false,
                },
            },
            "notices": {
                "type": "array", "items": { "type": "string" },
                "description": "What is owed to the makers of data that is part of the service itself.",
            },
        },
        "additionalProperties": false,
    })
}
