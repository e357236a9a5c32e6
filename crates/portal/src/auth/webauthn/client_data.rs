//! What the browser states about a ceremony (WebAuthn, section 5.8.1).

use serde::Deserialize;
use serde_json::Value;

use super::error::WebauthnError;

/// A registration or a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceremony {
    Registration,
    Authentication,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientData {
    r#type: String,
    challenge: String,
    origin: String,
    cross_origin: Option<bool>,
    top_origin: Option<Value>,
}

/// Verifies client data. The challenge is Base64.
///
/// # Errors
/// If it is malformed, or belongs to another ceremony, challenge or origin.
pub(crate) fn verify_client_data(
    json: &[u8],
    ceremony: Ceremony,
    challenge: &str,
    origin: &str,
) -> Result<(), WebauthnError> {
    let data: ClientData = serde_json::from_slice(json).map_err(|_| WebauthnError::Malformed("client data"))?;
    let expected_type = match ceremony {
        Ceremony::Registration => "webauthn.create",
        Ceremony::Authentication => "webauthn.get",
    };
    if data.r#type != expected_type {
        return Err(WebauthnError::WrongCeremony);
    }
    if data.challenge != challenge {
        return Err(WebauthnError::WrongChallenge);
    }
    if data.origin != origin {
        return Err(WebauthnError::WrongOrigin);
    }
    if data.cross_origin == Some(true) || data.top_origin.is_some() {
        return Err(WebauthnError::CrossOrigin);
    }
    Ok(())
}
