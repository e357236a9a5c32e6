//! Sign-in with identity providers: OpenID Connect (authorization code flow with PKCE) and GitHub.
//!
//! It has no routes and stores nothing. [`SignInProvider::begin`] returns the URL to redirect the browser to, and a state that
//! the caller stores. [`SignInProvider::finish`] takes that state and the query that the provider sent the browser back with.

mod authorization_url;
mod callback;
mod error;
mod github;
mod http_client;
mod id_token;
mod identity;
mod metadata;
mod openid;
mod pending;
mod settings;
mod signing_keys;
#[cfg(test)]
mod tests;
mod token_request;

use url::Url;

pub use callback::SignInCallback;
pub use error::{IdTokenError, OidcError, ProviderErrorCode};
use github::GithubProvider;
pub use identity::ExternalIdentity;
use openid::OidcProvider;
pub use pending::PendingSignIn;
pub use settings::{GithubSettings, OidcProviderSettings};

/// An identity provider that people can sign in with.
pub struct SignInProvider(ProviderKind);

enum ProviderKind {
    Oidc(Box<OidcProvider>),
    Github(Box<GithubProvider>),
}

impl SignInProvider {
    /// An OpenID Connect provider. Does not send requests yet.
    ///
    /// # Errors
    /// If a URL is invalid.
    pub fn oidc(settings: OidcProviderSettings) -> Result<Self, OidcError> {
        Ok(Self(ProviderKind::Oidc(Box::new(OidcProvider::open(settings)?))))
    }

    /// GitHub.
    ///
    /// # Errors
    /// If the redirect URL is invalid.
    pub fn github(settings: GithubSettings) -> Result<Self, OidcError> {
        Ok(Self(ProviderKind::Github(Box::new(GithubProvider::open(settings)?))))
    }

    /// Name on the button.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.0 {
            ProviderKind::Oidc(provider) => provider.name(),
            ProviderKind::Github(_) => "GitHub",
        }
    }

    /// Where the provider sends the browser afterwards.
    #[must_use]
    pub fn redirect_url(&self) -> &str {
        match &self.0 {
            ProviderKind::Oidc(provider) => provider.redirect_url(),
            ProviderKind::Github(provider) => provider.redirect_url(),
        }
    }

    /// Identifies the provider; the issuer of its identities.
    #[must_use]
    pub fn issuer(&self) -> &str {
        match &self.0 {
            ProviderKind::Oidc(provider) => provider.issuer(),
            ProviderKind::Github(_) => github::ISSUER,
        }
    }

    /// Begins a sign-in. Returns the URL to redirect the browser to, and the state to store.
    ///
    /// # Errors
    /// If the discovery document cannot be read or is not accepted.
    pub async fn begin(&self) -> Result<(Url, PendingSignIn), OidcError> {
        let pending = PendingSignIn::generate(self.issuer());
        let url = match &self.0 {
            ProviderKind::Oidc(provider) => provider.begin(&pending).await?,
            ProviderKind::Github(provider) => provider.begin(&pending),
        };
        Ok((url, pending))
    }

    /// Finishes a sign-in. The state belongs to the browser that sent the request, and was removed from its store.
    ///
    /// # Errors
    /// If the provider did not sign the person in, does not respond, or responds with something that is not accepted.
    pub async fn finish(
        &self,
        pending: PendingSignIn,
        callback: &SignInCallback,
    ) -> Result<ExternalIdentity, OidcError> {
        if pending.issuer() != self.issuer() {
            return Err(OidcError::WrongProvider);
        }
        match &self.0 {
            ProviderKind::Oidc(provider) => provider.finish(&pending, callback).await,
            ProviderKind::Github(provider) => provider.finish(&pending, callback).await,
        }
    }
}
