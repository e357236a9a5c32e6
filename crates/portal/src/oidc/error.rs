//! Why a sign-in with an identity provider failed.

use std::fmt;

use http::StatusCode;

/// Longest error code of a provider that messages repeat.
const CODE_CHARACTERS_MAX: usize = 64;

/// A sign-in that failed. The messages are for the operator. They never contain a token, a code or a secret.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// A URL in the settings is not allowed.
    #[error("failed to parse {0}. Use a URL that starts with https://")]
    InvalidUrl(&'static str),
    /// The HTTPS client could not be created.
    #[error("failed to create the HTTPS client")]
    CreateClient(#[source] reqwest::Error),
    /// An endpoint did not respond.
    #[error("failed to reach the provider's {endpoint}")]
    Unreachable {
        /// The endpoint.
        endpoint: &'static str,
        /// The cause, without the URL.
        #[source]
        cause: reqwest::Error,
    },
    /// An endpoint responded with an unexpected status.
    #[error("the provider's {endpoint} responded with {status}")]
    UnexpectedStatus {
        /// The endpoint.
        endpoint: &'static str,
        /// The status of the response.
        status: StatusCode,
    },
    /// The body of a response is too large.
    #[error("the response of the provider's {0} is too large")]
    ResponseTooLarge(&'static str),
    /// The body of a response lacks something, or is not JSON.
    #[error("the response of the provider's {0} is malformed")]
    MalformedResponse(&'static str),
    /// The discovery document belongs to another issuer.
    #[error("the provider names itself by another issuer. Copy `issuer` from its discovery document")]
    WrongMetadataIssuer,
    /// The discovery document names an endpoint that is not HTTPS.
    #[error("the provider's discovery document has no HTTPS URL as {0}")]
    InvalidEndpoint(&'static str),
    /// The provider supports no way to send the client secret that this client has.
    #[error("the provider supports neither client_secret_basic nor client_secret_post")]
    UnsupportedClientAuthentication,
    /// The sign-in began with another provider.
    #[error("the sign-in began with another provider")]
    WrongProvider,
    /// A parameter occurs more than once in the response to the browser.
    #[error("the provider's response repeats a parameter")]
    RepeatedParameter,
    /// The state is missing, or belongs to another sign-in.
    #[error("the response belongs to another sign-in (state)")]
    WrongState,
    /// The issuer is missing, or is another provider (RFC 9207).
    #[error("the response comes from another provider (iss)")]
    WrongResponseIssuer,
    /// The provider did not sign the person in.
    #[error("the provider did not complete the sign-in: {0}")]
    Denied(ProviderErrorCode),
    /// The response has neither a code nor an error.
    #[error("the provider's response has no code")]
    MissingCode,
    /// The provider did not accept the code or the client.
    #[error("the provider's token endpoint rejected the request: {0}. Check the client id, secret and redirect URL")]
    TokenRejected(ProviderErrorCode),
    /// The response of the token endpoint has no ID token.
    #[error("the provider's token endpoint sent no ID token. Check that the client may use OpenID Connect")]
    MissingIdToken,
    /// The ID token is not accepted.
    #[error("the provider's ID token is not accepted")]
    IdToken(#[from] IdTokenError),
    /// The userinfo endpoint describes another person than the ID token.
    #[error("the provider's userinfo endpoint describes another person than the ID token")]
    WrongUserinfoSubject,
}

/// Why an ID token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenError {
    /// It is too large.
    #[error("it is too large")]
    TooLarge,
    /// It is no signed token, lacks a claim, or has one twice.
    #[error("it is malformed")]
    Malformed,
    /// The algorithm is not RS256, ES256 or EdDSA.
    #[error("it is not signed with RS256, ES256 or EdDSA")]
    UnsupportedAlgorithm,
    /// It has an extension that has to be understood.
    #[error("it has a critical header")]
    CriticalHeader,
    /// The provider does not publish the key.
    #[error("the provider does not publish the key that signed it")]
    UnknownKey,
    /// The signature does not verify.
    #[error("the signature is invalid")]
    InvalidSignature,
    /// Another provider issued it.
    #[error("another provider issued it (iss)")]
    WrongIssuer,
    /// It is for another client.
    #[error("it is for another client (aud)")]
    WrongAudience,
    /// It was issued to another client.
    #[error("it was issued to another client (azp)")]
    WrongAuthorizedParty,
    /// It is expired.
    #[error("it is expired. Check the clock of this machine")]
    Expired,
    /// It is not valid yet.
    #[error("it is not valid yet. Check the clock of this machine")]
    NotYetValid,
    /// It belongs to another sign-in.
    #[error("it belongs to another sign-in (nonce)")]
    WrongNonce,
    /// The subject is empty, too long, or contains NUL.
    #[error("the subject is invalid (sub)")]
    InvalidSubject,
}

/// An error code of a provider. Text that does not look like one is left out, because it may contain anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderErrorCode(Option<String>);

impl ProviderErrorCode {
    pub(super) fn new(text: &str) -> Self {
        let is_code = (1..=CODE_CHARACTERS_MAX).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'));
        Self(is_code.then(|| text.to_owned()))
    }
}

impl fmt::Display for ProviderErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_deref().unwrap_or("unknown error"))
    }
}
