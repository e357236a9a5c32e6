//! What a provider sends back by the browser.

use subtle::ConstantTimeEq;

use super::error::{OidcError, ProviderErrorCode};
use super::pending::PendingSignIn;

/// The query of the request that a provider redirects the browser to. No `Debug`, because the code is a secret.
#[derive(Default)]
pub struct SignInCallback {
    code: Option<String>,
    state: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

/// The `iss` parameter that a provider sends (RFC 9207).
pub(super) struct ResponseIssuer<'a> {
    pub(super) value: &'a str,
    pub(super) is_required: bool,
}

impl SignInCallback {
    /// Reads the query of a request.
    ///
    /// # Errors
    /// If a parameter occurs more than once.
    pub fn parse(query: &str) -> Result<Self, OidcError> {
        let mut callback = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let parameter = match &*name {
                "code" => &mut callback.code,
                "state" => &mut callback.state,
                "iss" => &mut callback.issuer,
                "error" => &mut callback.error,
                _ => continue,
            };
            if parameter.replace(value.into_owned()).is_some() {
                return Err(OidcError::RepeatedParameter);
            }
        }
        Ok(callback)
    }

    /// The code, if this is the response to the pending sign-in.
    pub(super) fn verify(&self, pending: &PendingSignIn, issuer: &ResponseIssuer<'_>) -> Result<&str, OidcError> {
        let state = self.state.as_deref().unwrap_or_default();
        if !bool::from(state.as_bytes().ct_eq(pending.state.as_bytes())) {
            return Err(OidcError::WrongState);
        }
        if self.issuer.as_deref().map_or(issuer.is_required, |value| value != issuer.value) {
            return Err(OidcError::WrongResponseIssuer);
        }
        if let Some(error) = &self.error {
            return Err(OidcError::Denied(ProviderErrorCode::new(error)));
        }
        self.code.as_deref().filter(|code| !code.is_empty()).ok_or(OidcError::MissingCode)
    }
}
