//! What browsers send: the JSON of a `PublicKeyCredential`.

use serde::Deserialize;

use super::base64_url::Base64Url;
use super::error::WebauthnError;

/// The response to a registration.
pub(crate) type RegistrationResponse = CredentialResponse<AttestationResponse>;

/// The response to a sign-in.
pub(crate) type AuthenticationResponse = CredentialResponse<AssertionResponse>;

/// A `PublicKeyCredential`. Unknown fields are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CredentialResponse<R> {
    id: Base64Url,
    raw_id: Base64Url,
    r#type: String,
    pub(crate) response: R,
}

impl<R> CredentialResponse<R> {
    /// The credential's id. It is not verified yet.
    pub(crate) fn credential_id(&self) -> &[u8] {
        &self.raw_id.0
    }

    /// Checks the type and the id of the credential.
    ///
    /// # Errors
    /// If it is not a public key or has another id.
    pub(crate) fn verify_identity(&self, credential_id: &[u8]) -> Result<(), WebauthnError> {
        if self.r#type != "public-key" {
            return Err(WebauthnError::Malformed("credential type"));
        }
        if self.raw_id.0 != credential_id || self.id != self.raw_id {
            return Err(WebauthnError::WrongCredentialId);
        }
        Ok(())
    }
}

/// An `AuthenticatorAttestationResponse`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttestationResponse {
    #[serde(rename = "clientDataJSON")]
    pub(crate) client_data_json: Base64Url,
    pub(crate) attestation_object: Base64Url,
}

/// An `AuthenticatorAssertionResponse`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AssertionResponse {
    #[serde(rename = "clientDataJSON")]
    pub(crate) client_data_json: Base64Url,
    pub(crate) authenticator_data: Base64Url,
    pub(crate) signature: Base64Url,
    pub(crate) user_handle: Option<Base64Url>,
}
