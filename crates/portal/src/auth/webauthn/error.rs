//! Why a response of an authenticator was rejected.

/// A response that is not accepted. Visitors see the same message for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebauthnError {
    /// A structure is incomplete, has trailing bytes, or contains a value of the wrong type.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The response belongs to another ceremony.
    #[error("response of another ceremony")]
    WrongCeremony,
    /// The response answers another challenge.
    #[error("wrong challenge")]
    WrongChallenge,
    /// A page of another origin requested the response.
    #[error("wrong origin")]
    WrongOrigin,
    /// A page inside a frame of another origin requested the response.
    #[error("cross-origin frame")]
    CrossOrigin,
    /// The passkey belongs to another relying party.
    #[error("wrong relying party")]
    WrongRelyingParty,
    /// The authenticator did not check that a person is present.
    #[error("user not present")]
    UserNotPresent,
    /// The authenticator did not check who the person is.
    #[error("user not verified")]
    UserNotVerified,
    /// The backup flags contradict each other or those of the registration.
    #[error("inconsistent backup flags")]
    InconsistentBackupFlags,
    /// The algorithm is not one of those offered.
    #[error("unsupported algorithm")]
    UnsupportedAlgorithm,
    /// The public key is too weak or not a point of its curve.
    #[error("invalid public key")]
    InvalidPublicKey,
    /// The credential id differs from that of the passkey.
    #[error("wrong credential id")]
    WrongCredentialId,
    /// The user handle is not that of the passkey's account.
    #[error("wrong user handle")]
    WrongUserHandle,
    /// The signature does not verify.
    #[error("invalid signature")]
    InvalidSignature,
    /// The counter did not increase: the passkey may have been copied.
    #[error("counter did not increase")]
    StaleCounter,
}
