//! What an authenticator states and signs (WebAuthn, section 6.1).

use super::cbor::{CborReader, set_once};
use super::error::WebauthnError;
use super::public_key::PublicKey;

const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
const BACKUP_ELIGIBLE: u8 = 0x08;
const BACKED_UP: u8 = 0x10;
const ATTESTED_CREDENTIAL: u8 = 0x40;
const EXTENSIONS: u8 = 0x80;

const AAGUID_BYTES: usize = 16;
const CREDENTIAL_ID_BYTES_MAX: usize = 1023;

const MALFORMED: WebauthnError = WebauthnError::Malformed("authenticator data");

/// Authenticator data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AuthenticatorData<'a> {
    relying_party_id_hash: [u8; 32],
    flags: u8,
    /// Number of signatures, or 0 if the authenticator does not count.
    pub(crate) counter: u32,
    /// The new credential of a registration.
    pub(crate) credential: Option<AttestedCredential<'a>>,
}

/// A new credential.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AttestedCredential<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) public_key: PublicKey,
}

impl<'a> AuthenticatorData<'a> {
    /// Parses authenticator data.
    ///
    /// # Errors
    /// If it is malformed, has trailing bytes, or contains a public key that is not supported.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, WebauthnError> {
        let (relying_party_id_hash, rest) = bytes.split_first_chunk().ok_or(MALFORMED)?;
        let ([flags], rest) = rest.split_first_chunk().ok_or(MALFORMED)?;
        let (counter, mut rest) = rest.split_first_chunk().ok_or(MALFORMED)?;
        let mut credential = None;
        if flags & ATTESTED_CREDENTIAL != 0 {
            let (attested, after) = AttestedCredential::parse(rest)?;
            (credential, rest) = (Some(attested), after);
        }
        if flags & EXTENSIONS != 0 {
            let mut reader = CborReader::new(rest);
            reader.skip_map()?;
            rest = reader.rest();
        }
        if !rest.is_empty() {
            return Err(MALFORMED);
        }
        let (relying_party_id_hash, counter) = (*relying_party_id_hash, u32::from_be_bytes(*counter));
        Ok(Self { relying_party_id_hash, flags: *flags, counter, credential })
    }

    /// Checks what registrations and sign-ins have in common.
    ///
    /// # Errors
    /// If the data belongs to another relying party, the user was not verified, or the backup flags contradict each other.
    pub(crate) fn verify(&self, relying_party_id_hash: &[u8; 32]) -> Result<(), WebauthnError> {
        if self.relying_party_id_hash != *relying_party_id_hash {
            return Err(WebauthnError::WrongRelyingParty);
        }
        if !self.has(USER_PRESENT) {
            return Err(WebauthnError::UserNotPresent);
        }
        if !self.has(USER_VERIFIED) {
            return Err(WebauthnError::UserNotVerified);
        }
        if self.has(BACKED_UP) && !self.is_backup_eligible() {
            return Err(WebauthnError::InconsistentBackupFlags);
        }
        Ok(())
    }

    /// Whether the passkey can be copied to other devices, for example by a password manager.
    pub(crate) const fn is_backup_eligible(&self) -> bool {
        self.has(BACKUP_ELIGIBLE)
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl<'a> AttestedCredential<'a> {
    /// Parses a credential, and returns the bytes after it.
    fn parse(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), WebauthnError> {
        let (_, rest) = bytes.split_first_chunk::<AAGUID_BYTES>().ok_or(MALFORMED)?;
        let (length, rest) = rest.split_first_chunk().ok_or(MALFORMED)?;
        let length = usize::from(u16::from_be_bytes(*length));
        if !(1..=CREDENTIAL_ID_BYTES_MAX).contains(&length) {
            return Err(MALFORMED);
        }
        let (id, rest) = rest.split_at_checked(length).ok_or(MALFORMED)?;
        let mut reader = CborReader::new(rest);
        let public_key = PublicKey::read_cose(&mut reader)?;
        Ok((Self { id, public_key }, reader.rest()))
    }
}

/// Returns the authenticator data of an attestation object (WebAuthn, section 6.5).
///
/// The format and the statement are not evaluated. The options request no attestation, and an authenticator can always
/// omit it.
///
/// # Errors
/// If the object is malformed or has trailing bytes.
pub(crate) fn attested_data(attestation_object: &[u8]) -> Result<&[u8], WebauthnError> {
    const MALFORMED: WebauthnError = WebauthnError::Malformed("attestation object");
    let mut reader = CborReader::new(attestation_object);
    let (mut format, mut statement, mut data) = (None, None, None);
    for _ in 0..reader.map()? {
        match reader.text()? {
            "fmt" => set_once(&mut format, reader.text()?)?,
            "attStmt" => set_once(&mut statement, reader.skip()?)?,
            "authData" => set_once(&mut data, reader.bytes()?)?,
            _ => reader.skip()?,
        }
    }
    match (format, statement, data) {
        (Some(_), Some(()), Some(data)) if reader.rest().is_empty() => Ok(data),
        _ => Err(MALFORMED),
    }
}
