//! Operations on keys.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use ipseity_domain::account::KeyName;
use ipseity_domain::{KeyId, PlaintextKey, Restrictions, Scope};
use ipseity_keys::CommittedChange;
use ipseity_store::{Actor, KeySummary};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{JsonBody, KeyPath, invalid, optional_integer};
use super::error::{ManageError, json_response};
use super::guard::ActingToken;
use super::key_body::{change_json, key_json, pause_json};
use super::restrictions::RestrictionsBody;
use crate::keys::list::{load_activities, load_activity};
use crate::keys::new_key::random_byte;
use crate::state::Portal;

/// Maximum number of pauses in a response.
const PAUSES_MAX: i64 = 50;
/// The longest time that the previous secret stays valid: a week.
pub(super) const OVERLAP_S_MAX: u32 = 604_800;
const NAME_HINT: &str = "`name` must have 1 to 100 characters, and no control characters";

type Reply = Result<Response, ManageError>;
type PortalState = State<Arc<Portal>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKeyBody {
    name: String,
    scope: String,
    #[serde(default)]
    restrictions: Option<RestrictionsBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyUpdateBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    restrictions: Option<RestrictionsBody>,
    #[serde(default)]
    is_active: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotationBody {
    #[serde(deserialize_with = "optional_integer")]
    overlap_s: Option<u64>,
}

fn parse_name(text: &str) -> Result<KeyName, ManageError> {
    KeyName::parse(text).ok_or_else(|| invalid(NAME_HINT))
}

impl ActingToken {
    /// Changes with the token are changes by the owner.
    fn actor(&self) -> Actor {
        Actor::Owner(self.account.id)
    }
}

impl Portal {
    async fn key_of(&self, token: &ActingToken, id: KeyId) -> Result<KeySummary, ManageError> {
        self.store.keys().find(token.account.id, id).await?.ok_or(ManageError::NotFound)
    }

    async fn key_json_of(&self, token: &ActingToken, id: KeyId) -> Result<Value, ManageError> {
        let row = self.key_of(token, id).await?;
        Ok(key_json(&row, load_activity(&self.ledger, &row).await))
    }

    /// The response to a change of a key that still exists.
    async fn changed_key(&self, token: &ActingToken, id: KeyId, committed: &CommittedChange) -> Reply {
        let mut body = change_json(committed);
        body["key"] = self.key_json_of(token, id).await?;
        Ok(json_response(StatusCode::OK, &body))
    }
}

pub(super) async fn list(State(portal): PortalState, token: ActingToken) -> Reply {
    let rows = portal.store.keys().list(token.account.id).await?;
    let activities = load_activities(&portal.ledger, &rows).await;
    let keys: Vec<_> = rows.iter().zip(activities).map(|(row, activity)| key_json(row, activity)).collect();
    let body = json!({ "status": "success", "keys": keys, "keys_max": token.account.keys_max });
    Ok(json_response(StatusCode::OK, &body))
}

pub(super) async fn show(State(portal): PortalState, token: ActingToken, KeyPath(id): KeyPath) -> Reply {
    let key = portal.key_json_of(&token, id).await?;
    Ok(json_response(StatusCode::OK, &json!({ "status": "success", "key": key })))
}

pub(super) async fn create(
    State(portal): PortalState,
    token: ActingToken,
    JsonBody(body): JsonBody<NewKeyBody>,
) -> Reply {
    let name = parse_name(&body.name)?;
    let scope = Scope::parse(&body.scope).ok_or_else(|| invalid("`scope` must be ip, geo or full"))?;
    let restrictions = body.restrictions.map(|restrictions| restrictions.parse(None)).transpose()?;
    let restrictions = restrictions.unwrap_or_default();
    portal.count_change(&token)?;
    let plaintext = PlaintextKey::generate(random_byte);
    let key = plaintext.to_api_key();
    let services = portal.change_services(&token).await?;
    services.store.keys().create(&token.account, token.actor(), &name, scope, &key, &restrictions).await?;
    drop(services);
    let key = portal.key_json_of(&token, key.id).await?;
    let body = json!({ "status": "success", "applied": true, "key": key, "secret": plaintext.expose() });
    Ok(json_response(StatusCode::CREATED, &body))
}

/// Everything is checked before anything changes.
pub(super) async fn update(
    State(portal): PortalState,
    token: ActingToken,
    KeyPath(id): KeyPath,
    JsonBody(body): JsonBody<KeyUpdateBody>,
) -> Reply {
    let row = portal.key_of(&token, id).await?;
    let name = body.name.as_deref().map(parse_name).transpose()?;
    let saved_expiry_s = row.restrictions.expires_at_s;
    let restrictions: Option<Restrictions> =
        body.restrictions.map(|restrictions| restrictions.parse(saved_expiry_s)).transpose()?;
    if name.is_none() && restrictions.is_none() && body.is_active.is_none() {
        return Err(invalid("it changes nothing. Send `name`, `restrictions` or `is_active`"));
    }
    if restrictions.is_some() && !portal.store.keys().are_restrictions_enabled().await? {
        return Err(ManageError::RestrictionsNotEnabled);
    }
    // Not throttled if it only deactivates, like every revocation.
    if name.is_some() || restrictions.is_some() || body.is_active == Some(true) {
        portal.count_change(&token)?;
    }
    let services = portal.change_services(&token).await?;
    let mut is_applied = true;
    if body.is_active == Some(false) {
        is_applied &= services.keys.deactivate(token.actor(), id).await?.publish_error.is_none();
    }
    if let Some(restrictions) = &restrictions {
        is_applied &= services.keys.restrict(token.actor(), id, restrictions, None).await?.publish_error.is_none();
    }
    if let Some(name) = &name {
        services.store.keys().rename(token.actor(), id, name).await?;
    }
    if body.is_active == Some(true) {
        is_applied &= services.keys.reactivate(token.actor(), id).await?.publish_error.is_none();
    }
    drop(services);
    let key = portal.key_json_of(&token, id).await?;
    Ok(json_response(StatusCode::OK, &json!({ "status": "success", "applied": is_applied, "key": key })))
}

pub(super) async fn rotate(
    State(portal): PortalState,
    token: ActingToken,
    KeyPath(id): KeyPath,
    JsonBody(body): JsonBody<RotationBody>,
) -> Reply {
    let overlap_s = body.overlap_s.and_then(|overlap_s| u32::try_from(overlap_s).ok());
    let overlap_s = overlap_s.filter(|overlap_s| *overlap_s <= OVERLAP_S_MAX);
    let overlap_s = overlap_s.ok_or_else(|| invalid(&format!("`overlap_s` must be from 0 to {OVERLAP_S_MAX}")))?;
    portal.key_of(&token, id).await?;
    portal.count_change(&token)?;
    let plaintext = PlaintextKey::rotate(id, random_byte);
    let services = portal.change_services(&token).await?;
    let committed = services.keys.rotate(token.actor(), &plaintext.to_api_key(), overlap_s).await?;
    drop(services);
    let mut body = change_json(&committed);
    body["key"] = portal.key_json_of(&token, id).await?;
    body["secret"] = plaintext.expose().into();
    Ok(json_response(StatusCode::OK, &body))
}

/// Not throttled, like every revocation.
pub(super) async fn revoke_previous(State(portal): PortalState, token: ActingToken, KeyPath(id): KeyPath) -> Reply {
    portal.key_of(&token, id).await?;
    let services = portal.change_services(&token).await?;
    let committed = services.keys.revoke_previous(token.actor(), id).await?;
    drop(services);
    portal.changed_key(&token, id, &committed).await
}

pub(super) async fn resume(State(portal): PortalState, token: ActingToken, KeyPath(id): KeyPath) -> Reply {
    portal.key_of(&token, id).await?;
    if !token.may_resume {
        return Err(ManageError::ResumeNotAllowed);
    }
    portal.count_change(&token)?;
    let services = portal.change_services(&token).await?;
    // The owner may have forbidden it while this waited.
    if !services.store.personal_tokens().may_resume(token.account.id).await? {
        return Err(ManageError::ResumeNotAllowed);
    }
    let committed = services.keys.resume(token.actor(), id).await?;
    drop(services);
    portal.changed_key(&token, id, &committed).await
}

/// Not throttled, like every revocation.
pub(super) async fn delete(State(portal): PortalState, token: ActingToken, KeyPath(id): KeyPath) -> Reply {
    portal.key_of(&token, id).await?;
    let services = portal.change_services(&token).await?;
    let committed = services.keys.delete(token.actor(), id).await?;
    Ok(json_response(StatusCode::OK, &change_json(&committed)))
}

pub(super) async fn pauses(State(portal): PortalState, token: ActingToken, KeyPath(id): KeyPath) -> Reply {
    portal.key_of(&token, id).await?;
    let pauses = portal.store.keys().list_pauses(token.account.id, id, PAUSES_MAX).await?;
    let pauses: Vec<_> = pauses.iter().map(pause_json).collect();
    Ok(json_response(StatusCode::OK, &json!({ "status": "success", "pauses": pauses })))
}
