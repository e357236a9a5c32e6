//! Settings of identity providers.

use std::fmt;

/// An OpenID Connect provider.
#[derive(Clone)]
pub struct OidcProviderSettings {
    /// Name on the button, such as `Google`.
    pub name: String,
    /// Issuer, exactly as the provider's discovery document states it.
    pub issuer: String,
    /// Client id.
    pub client_id: String,
    /// Client secret.
    pub client_secret: String,
    /// URL that the provider redirects browsers to.
    pub redirect_url: String,
}

/// An OAuth app of GitHub.
#[derive(Clone)]
pub struct GithubSettings {
    /// Client id.
    pub client_id: String,
    /// Client secret.
    pub client_secret: String,
    /// URL that GitHub redirects browsers to.
    pub redirect_url: String,
}

// Without the secrets.
impl fmt::Debug for OidcProviderSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, issuer, client_id, client_secret: _, redirect_url } = self;
        formatter
            .debug_struct("OidcProviderSettings")
            .field("name", name)
            .field("issuer", issuer)
            .field("client_id", client_id)
            .field("redirect_url", redirect_url)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for GithubSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client_id, client_secret: _, redirect_url } = self;
        formatter
            .debug_struct("GithubSettings")
            .field("client_id", client_id)
            .field("redirect_url", redirect_url)
            .finish_non_exhaustive()
    }
}
