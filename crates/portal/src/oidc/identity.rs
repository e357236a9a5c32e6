//! Who signed in.

/// A person as an identity provider knows them. Issuer and subject together identify the person, and never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalIdentity {
    /// The provider.
    pub issuer: String,
    /// The provider's identifier of the person.
    pub subject: String,
    /// Email address, if the provider verified it. It may change, and two people may have the same.
    pub email: Option<String>,
    /// Name.
    pub name: Option<String>,
}
