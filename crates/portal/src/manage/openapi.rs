//! The part of the OpenAPI document about the management API. The API adds the headers and errors that all operations have.

use serde_json::{Map, Value, json};

use super::error::ManageError;
use super::routes::{MANAGE_ROUTES, ManageRoute};
use super::schema::{self, EXAMPLE_SECRET};

/// The paths and schemas of the management API.
#[must_use]
pub fn manage_openapi(base_url: &str) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in MANAGE_ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method] = operation(route, base_url);
    }
    json!({
        "paths": paths,
        "schemas": schema::components(),
        "tag": { "name": "manage", "description": "Manage keys and channels of alerts with a personal token." },
        "security_scheme": {
            "type": "http", "scheme": "bearer",
            "description": "A personal token, which starts with `ipm_`. Its owner creates it on the account page.",
        },
    })
}

fn operation(route: &ManageRoute, base_url: &str) -> Value {
    let (status, schema, example) = success(route);
    let content = json!({ "application/json": {
        "schema": { "$ref": format!("#/components/schemas/{schema}") }, "examples": { route.id: { "value": example } },
    } });
    let mut responses = Map::new();
    responses.insert(status.to_owned(), json!({ "description": "Success", "content": content }));
    responses.extend(error_responses(route, base_url));
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        let (name, schema, example) = if route.path.contains("/keys/") {
            (
                "Id of the key.",
                json!({ "type": "string", "pattern": "^[0-9A-Za-z]{10}$" }),
                json!(schema::EXAMPLE_KEY_ID),
            )
        } else {
            ("Id of the channel.", json!({ "type": "integer", "format": "int64", "minimum": 1 }), json!(7))
        };
        parameters.push(
            json!({ "name": "id", "in": "path", "required": true, "description": name, "schema": schema, "example": example }),
        );
    }
    if route.id == "getUsage" {
        parameters.push(json!({
            "name": "key", "in": "query", "required": false, "description": "Only this key.",
            "schema": { "type": "string", "pattern": "^[0-9A-Za-z]{10}$" }, "example": schema::EXAMPLE_KEY_ID,
        }));
    }
    let mut object = json!({
        "operationId": route.id,
        "tags": ["manage"],
        "summary": route.summary,
        "description": format!("Needs a personal token with the scope `{}`. Free.", route.scope),
        "security": [{ "personalToken": [] }],
        "parameters": parameters,
        "responses": responses,
    });
    if let Some((schema, example)) = request(route) {
        let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
        object["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema, "example": example } } });
    }
    object
}

/// The schema and an example of the body of a request.
fn request(route: &ManageRoute) -> Option<(&'static str, Value)> {
    match route.id {
        "createKey" => Some(("NewKey", schema::new_key_example())),
        "updateKey" => Some(("KeyUpdate", json!({ "name": "shop", "is_active": true }))),
        "rotateKey" => Some(("KeyRotation", json!({ "overlap_s": 86_400 }))),
        "createChannel" => Some(("NewChannel", schema::new_channel_example())),
        "updateChannel" => Some(("ChannelUpdate", json!({ "alerts": ["paused"] }))),
        _ => None,
    }
}

/// The status, the schema and an example of a success.
fn success(route: &ManageRoute) -> (&'static str, &'static str, Value) {
    let with = |mut body: Value, name: &str, value: Value| {
        body["status"] = "success".into();
        body[name] = value;
        body
    };
    let key = || with(json!({}), "key", schema::key_example());
    let changed_key = || with(key(), "applied", true.into());
    let channel = || with(json!({}), "channel", schema::channel_example());
    match route.id {
        "listKeys" => ("200", "KeyList", with(json!({ "keys_max": 10 }), "keys", json!([schema::key_example()]))),
        "createKey" => ("201", "KeyWithSecret", with(changed_key(), "secret", EXAMPLE_SECRET.into())),
        "rotateKey" => ("200", "KeyWithSecret", with(changed_key(), "secret", EXAMPLE_SECRET.into())),
        "getKey" => ("200", "KeyResponse", key()),
        "updateKey" | "revokePreviousSecret" | "resumeKey" => ("200", "ChangedKey", changed_key()),
        "deleteKey" => ("200", "Deleted", with(json!({}), "applied", true.into())),
        "listPauses" => ("200", "PauseList", with(json!({}), "pauses", json!([schema::pause_example()]))),
        "getUsage" => ("200", "Usage", schema::usage_example()),
        "listChannels" => {
            ("200", "ChannelList", with(json!({ "channels_max": 5 }), "channels", json!([schema::channel_example()])))
        }
        "createChannel" => {
            ("201", "ChannelWithSecret", with(channel(), "secret", schema::EXAMPLE_WEBHOOK_SECRET.into()))
        }
        "rotateChannelSecret" => {
            ("200", "ChannelWithSecret", with(channel(), "secret", schema::EXAMPLE_WEBHOOK_SECRET.into()))
        }
        "deleteChannel" => ("200", "ChannelDeleted", json!({ "status": "success" })),
        _ => ("200", "ChannelResponse", channel()),
    }
}

/// The errors of an operation, with a name for each.
pub(super) fn errors(route: &ManageRoute) -> Vec<(&'static str, ManageError)> {
    let (is_change, has_id) = (route.method != "get", route.path.contains("{id}"));
    let mut errors = vec![
        ("https_required", ManageError::HttpsRequired),
        ("missing_token", ManageError::MissingToken),
        ("invalid_token", ManageError::InvalidToken),
        ("expired_token", ManageError::ExpiredToken),
        ("key_instead_of_token", ManageError::KeyInsteadOfToken),
        ("from_page", ManageError::FromPage),
        ("insufficient_scope", ManageError::ScopeMissing(route.scope)),
        ("two_factor_required", ManageError::TwoFactorRequired),
        ("not_at_home", ManageError::NotAtHome("https://portal.example.com".to_owned())),
        ("token_limited", ManageError::TokenLimited(42)),
        ("network_limited", ManageError::NetworkLimited(42)),
    ];
    if has_id || route.id == "getUsage" {
        errors.push(("not_found", ManageError::NotFound));
    }
    if request(route).is_some() || route.id == "rotateChannelSecret" {
        errors.push(("bad_request", ManageError::Invalid("`name` must have 1 to 100 characters".to_owned())));
    }
    if is_change && route.method != "delete" && route.id != "revokePreviousSecret" {
        errors.push(("changes_limited", ManageError::ChangesLimited(600)));
    }
    match route.id {
        "createKey" => {
            errors.push(("key_limit_reached", ManageError::KeyLimitReached(10)));
            errors.push(("restrictions_not_enabled", ManageError::RestrictionsNotEnabled));
        }
        "updateKey" => errors.push(("restrictions_not_enabled", ManageError::RestrictionsNotEnabled)),
        "resumeKey" => {
            errors.push(("resume_not_allowed", ManageError::ResumeNotAllowed));
            errors.push(("resumed_recently", ManageError::ResumedRecently(42)));
        }
        "createChannel" => errors.push(("channel_limit_reached", ManageError::ChannelLimitReached)),
        _ => {}
    }
    errors
}

fn error_responses(route: &ManageRoute, base_url: &str) -> Map<String, Value> {
    let mut responses: Map<String, Value> = Map::new();
    for (name, error) in errors(route) {
        let (headers, description) = match error.status().as_u16() {
            400 => (json!({}), "The request is not valid"),
            401 => (json!({ "WWW-Authenticate": header("WWW-Authenticate") }), "No valid personal token"),
            403 => (json!({}), "The token may not do this"),
            404 => (json!({}), "The account has no such resource"),
            409 => (json!({}), "The account or the service does not allow it now"),
            421 => (json!({}), "This server does not manage keys"),
            _ => (json!({ "Retry-After": header("Retry-After") }), "A limit is reached"),
        };
        let response = responses.entry(error.status().as_str()).or_insert_with(|| {
            json!({ "description": description, "headers": headers, "content": { "application/json": {
                "schema": { "$ref": "#/components/schemas/ErrorResponse" }, "examples": {},
            } } })
        });
        response["content"]["application/json"]["examples"][name] = json!({ "value": error.body(base_url) });
    }
    responses
}

fn header(name: &str) -> Value {
    json!({ "$ref": format!("#/components/headers/{name}") })
}
