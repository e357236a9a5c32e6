//! Reads requests.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use http::request::Parts;
use ipseity_domain::KeyId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::error::ManageError;
use crate::state::Portal;

/// Maximum length of a reason that repeats a part of the request.
const REASON_CHARS_MAX: usize = 200;

/// A JSON object in the body of a request.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Portal>> for JsonBody<T> {
    type Rejection = ManageError;

    async fn from_request(request: Request, portal: &Arc<Portal>) -> Result<Self, ManageError> {
        let body = to_bytes(request.into_body(), portal.settings.form_bytes_max).await;
        let body = body.map_err(|_| invalid("its body is too large, or incomplete"))?;
        // Not directly, because serde reads a struct from an array too.
        let members: Map<String, Value> =
            serde_json::from_slice(&body).map_err(|_| invalid("its body must be a JSON object"))?;
        T::deserialize(Value::Object(members)).map(Self).map_err(|error| invalid(&error.to_string()))
    }
}

/// Something in the request is wrong, for this reason.
pub(super) fn invalid(reason: &str) -> ManageError {
    ManageError::Invalid(reason.chars().take(REASON_CHARS_MAX).collect())
}

/// The id of a key in the path.
pub(super) struct KeyPath(pub(super) KeyId);

impl FromRequestParts<Arc<Portal>> for KeyPath {
    type Rejection = ManageError;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, ManageError> {
        let id = path_id(parts, portal).await?;
        KeyId::parse(&id).map(Self).ok_or(ManageError::NotFound)
    }
}

/// The id of a channel in the path.
pub(super) struct ChannelPath(pub(super) i64);

impl FromRequestParts<Arc<Portal>> for ChannelPath {
    type Rejection = ManageError;

    async fn from_request_parts(parts: &mut Parts, portal: &Arc<Portal>) -> Result<Self, ManageError> {
        let id = path_id(parts, portal).await?;
        id.parse().map(Self).map_err(|_| ManageError::NotFound)
    }
}

async fn path_id(parts: &mut Parts, portal: &Arc<Portal>) -> Result<String, ManageError> {
    Path::<String>::from_request_parts(parts, portal).await.map(|Path(id)| id).map_err(|_| ManageError::NotFound)
}

/// A value that may be null. In JSON, `30.0` is an integer too.
pub(super) fn optional_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    // Up to this, every integer is a float.
    let is_integer = |number: &f64| number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(number);
    let integer = number.as_u64().or_else(|| number.as_f64().filter(is_integer).map(|number| number as u64));
    integer.map(Some).ok_or_else(|| serde::de::Error::custom("a number must be an integer that is not negative"))
}
