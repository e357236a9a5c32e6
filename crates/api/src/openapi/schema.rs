//! The schemas of response bodies. They allow additional properties, so that a client generated from the document
//! accepts a field that a later version adds.

use ipseity_domain::{Field, FieldSet, Scope};
use serde_json::{Map, Value, json};

use crate::lookup::renderer::example::example_body;
use crate::operation::API_VERSION;

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
        "ErrorResponse": error_schema(),
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

fn meta_schema() -> Value {
    let text = |meaning: &str| json!({ "type": "string", "description": meaning });
    let nullable_text = |meaning: &str| json!({ "type": ["string", "null"], "description": meaning });
    json!({
        "type": "object",
        "description": "Version of the service and sources of its data.",
        "required": ["version", "interface", "databases", "notices"],
        "properties": {
            "version": text("Version of the service."),
            "interface": { "type": "string", "const": API_VERSION, "description": "Version of this API." },
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
