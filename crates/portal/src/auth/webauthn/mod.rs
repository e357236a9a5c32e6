//! The WebAuthn relying party: registers passkeys and verifies sign-ins (WebAuthn, sections 7.1 and 7.2).
//!
//! Passkeys are discoverable, with user verification and without attestation.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use authenticator_data::{AuthenticatorData, attested_data};
use base64_url::Base64Url;
use client_data::{Ceremony, verify_client_data};
pub(crate) use error::WebauthnError;
use public_key::ALGORITHMS;
pub(crate) use record::PasskeyRecord;
pub(crate) use response::{AuthenticationResponse, RegistrationResponse};

mod authenticator_data;
mod base64_url;
mod cbor;
mod client_data;
mod error;
mod public_key;
mod record;
mod response;
#[cfg(test)]
mod tests;

/// How long the browser waits for the user. The state of a ceremony is stored for the same time.
const TIMEOUT_MS: u32 = 300_000;
const CHALLENGE_BYTES: usize = 32;

/// The relying party that passkeys are bound to.
#[derive(Debug)]
pub(crate) struct RelyingParty {
    id: String,
    id_hash: [u8; 32],
    origin: String,
}

/// State of a registration between its two requests. Consumed by the second one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RegistrationState {
    registration_challenge: String,
}

/// State of a sign-in between its two requests. Consumed by the second one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthenticationState {
    authentication_challenge: String,
}

/// The account that a passkey is registered for.
pub(crate) struct PasskeyUser<'a> {
    /// The WebAuthn user handle.
    pub(crate) handle: &'a [u8],
    /// The name that the browser shows.
    pub(crate) name: &'a str,
}

/// A passkey that was registered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewPasskey {
    pub(crate) credential_id: Vec<u8>,
    pub(crate) record: PasskeyRecord,
}

/// A stored passkey that a sign-in names.
pub(crate) struct KnownPasskey<'a> {
    pub(crate) credential_id: &'a [u8],
    /// The WebAuthn user handle of the passkey's account.
    pub(crate) user_handle: &'a [u8],
    pub(crate) record: &'a PasskeyRecord,
}

impl RelyingParty {
    /// The relying party for the host of the base URL; `None` if it is an IP address, which passkeys cannot be bound to.
    pub(crate) fn from_base_url(base_url: &str) -> Option<Self> {
        let url = Url::parse(base_url).ok()?;
        let id = url.domain()?.to_owned();
        Some(Self { id_hash: Sha256::digest(&id).into(), id, origin: url.origin().ascii_serialization() })
    }

    /// Begins a registration. Returns the options for the browser and the state to store.
    pub(crate) fn begin_registration(
        &self,
        user: &PasskeyUser<'_>,
        existing_ids: &[Vec<u8>],
    ) -> (Value, RegistrationState) {
        let state = RegistrationState { registration_challenge: generate_challenge() };
        let algorithms = ALGORITHMS.map(|algorithm| json!({ "type": "public-key", "alg": algorithm }));
        let existing: Vec<_> =
            existing_ids.iter().map(|id| json!({ "type": "public-key", "id": Base64Url::encode(id) })).collect();
        let options = json!({ "publicKey": {
            "rp": { "id": self.id, "name": "Ipseity" },
            "user": { "id": Base64Url::encode(user.handle), "name": user.name, "displayName": user.name },
            "challenge": state.registration_challenge,
            "pubKeyCredParams": algorithms,
            "timeout": TIMEOUT_MS,
            "excludeCredentials": existing,
            "authenticatorSelection": {
                "residentKey": "required",
                "requireResidentKey": true,
                "userVerification": "required",
            },
            "attestation": "none",
            // Security keys do not reveal the passkey without user verification.
            "extensions": {
                "credentialProtectionPolicy": "userVerificationRequired",
                "enforceCredentialProtectionPolicy": false,
            },
        } });
        (options, state)
    }

    /// Verifies the response to a registration. The caller rejects a credential id that is already registered.
    ///
    /// # Errors
    /// If the response is not accepted.
    pub(crate) fn finish_registration(
        &self,
        state: RegistrationState,
        credential: &RegistrationResponse,
    ) -> Result<NewPasskey, WebauthnError> {
        let RegistrationState { registration_challenge: challenge } = state;
        let response = &credential.response;
        verify_client_data(&response.client_data_json.0, Ceremony::Registration, &challenge, &self.origin)?;
        let data = AuthenticatorData::parse(attested_data(&response.attestation_object.0)?)?;
        data.verify(&self.id_hash)?;
        let (counter, backup_eligible) = (data.counter, data.is_backup_eligible());
        let attested = data.credential.ok_or(WebauthnError::Malformed("authenticator data"))?;
        credential.verify_identity(attested.id)?;
        let record = PasskeyRecord { public_key: attested.public_key, counter, backup_eligible };
        Ok(NewPasskey { credential_id: attested.id.to_vec(), record })
    }

    /// Begins a sign-in with any passkey. Returns the options for the browser and the state to store.
    pub(crate) fn begin_authentication(&self) -> (Value, AuthenticationState) {
        let state = AuthenticationState { authentication_challenge: generate_challenge() };
        let options = json!({ "publicKey": {
            "challenge": state.authentication_challenge,
            "timeout": TIMEOUT_MS,
            "rpId": self.id,
            "allowCredentials": [],
            "userVerification": "required",
        } });
        (options, state)
    }

    /// Verifies the response to a sign-in. Returns the record to store if the counter changed.
    ///
    /// # Errors
    /// If the response is not accepted.
    pub(crate) fn finish_authentication(
        &self,
        state: AuthenticationState,
        credential: &AuthenticationResponse,
        passkey: &KnownPasskey<'_>,
    ) -> Result<Option<PasskeyRecord>, WebauthnError> {
        let AuthenticationState { authentication_challenge: challenge } = state;
        let (response, record) = (&credential.response, passkey.record);
        credential.verify_identity(passkey.credential_id)?;
        if response.user_handle.as_ref().is_some_and(|handle| handle.0 != passkey.user_handle) {
            return Err(WebauthnError::WrongUserHandle);
        }
        verify_client_data(&response.client_data_json.0, Ceremony::Authentication, &challenge, &self.origin)?;
        let data = AuthenticatorData::parse(&response.authenticator_data.0)?;
        if data.credential.is_some() {
            return Err(WebauthnError::WrongCeremony);
        }
        data.verify(&self.id_hash)?;
        if data.is_backup_eligible() != record.backup_eligible {
            return Err(WebauthnError::InconsistentBackupFlags);
        }
        let client_data_hash: [u8; 32] = Sha256::digest(&response.client_data_json.0).into();
        let signed = [response.authenticator_data.0.as_slice(), &client_data_hash].concat();
        record.public_key.verify(&signed, &response.signature.0)?;
        match (data.counter, record.counter) {
            (0, 0) => Ok(None),
            (new, old) if new > old => Ok(Some(PasskeyRecord { counter: new, ..record.clone() })),
            _ => Err(WebauthnError::StaleCounter),
        }
    }
}

fn generate_challenge() -> String {
    let mut bytes = [0; CHALLENGE_BYTES];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    Base64Url::encode(&bytes)
}
