//! The identity providers of the portal or the admin console, and what happens between the two requests of a sign-in with one.

use std::time::Duration;

use ipseity_domain::causes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::oidc::{ExternalIdentity, OidcError, PendingSignIn, SignInCallback, SignInProvider};

const LABEL_CHARS_MAX: usize = 254;

/// The providers with which the people of a site can sign in.
pub(crate) struct IdentityProviders {
    providers: Vec<SignInProvider>,
    /// How long a page waits for a provider.
    timeout: Duration,
    /// Who signs in, for the log.
    people: &'static str,
}

/// The state of a visit to a provider. The caller stores it for at most five minutes, bound to the browser, and takes it once.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderVisit<P> {
    /// What happens after the provider has identified the person.
    pub(crate) purpose: P,
    pending: PendingSignIn,
}

/// A page of a provider.
pub(crate) struct ProviderLink {
    pub(crate) provider: String,
    pub(crate) url: Url,
}

/// Why a visit to a provider identified no person.
#[derive(Debug)]
pub(crate) enum ProviderFailure {
    /// There is no such provider, or the visit began with another.
    UnknownProvider,
    /// The browser began no visit, or too long ago.
    NothingBegun,
    /// The person canceled it.
    Canceled(String),
    /// This provider did not answer in time.
    NoAnswer(String),
    /// The answer of this provider is not accepted.
    NotConfirmed(String),
}

impl ProviderFailure {
    /// What happened, and what to do.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::UnknownProvider => "This provider isn’t available here. Try again.".to_owned(),
            Self::NothingBegun => {
                "The sign-in took longer than five minutes, or was begun in another browser. Try again.".to_owned()
            }
            Self::Canceled(name) => format!("The sign-in with {name} was canceled."),
            Self::NoAnswer(name) => format!("{name} didn’t answer in time. Try again."),
            Self::NotConfirmed(name) => format!("{name} did not confirm who you are."),
        }
    }
}

impl<P: DeserializeOwned> ProviderVisit<P> {
    /// Reads a state that was taken from the store.
    pub(crate) fn read(state: Option<Value>) -> Result<Self, ProviderFailure> {
        state.and_then(|state| serde_json::from_value(state).ok()).ok_or(ProviderFailure::NothingBegun)
    }
}

impl IdentityProviders {
    pub(crate) fn new(providers: Vec<SignInProvider>, page_timeout: Duration, people: &'static str) -> Self {
        Self { providers, timeout: page_timeout * 3 / 4, people }
    }

    /// The names on the buttons, by index.
    pub(crate) fn names(&self) -> Vec<String> {
        self.providers.iter().map(|provider| provider.name().to_owned()).collect()
    }

    /// The name of the provider with this issuer, or the issuer.
    pub(crate) fn name_of(&self, issuer: &str) -> String {
        let provider = self.providers.iter().find(|provider| provider.issuer() == issuer);
        provider.map_or(issuer, SignInProvider::name).to_owned()
    }

    /// Begins a visit. Returns where the browser continues, and the state to store.
    pub(crate) async fn begin<P: Serialize>(
        &self,
        index: usize,
        purpose: P,
    ) -> Result<(ProviderLink, Value), ProviderFailure> {
        let provider = self.providers.get(index).ok_or(ProviderFailure::UnknownProvider)?;
        let (url, pending) = self.in_time(provider, provider.begin()).await?;
        let state = serde_json::to_value(ProviderVisit { purpose, pending }).expect("state is serialized");
        Ok((ProviderLink { provider: provider.name().to_owned(), url }, state))
    }

    /// Finishes a visit with the query that the browser brings back to the callback path of the provider.
    pub(crate) async fn finish<P>(
        &self,
        visit: ProviderVisit<P>,
        callback_path: &str,
        query: Option<&str>,
    ) -> Result<(P, ExternalIdentity), ProviderFailure> {
        let ProviderVisit { purpose, pending } = visit;
        let provider = self.providers.iter().find(|provider| provider.issuer() == pending.issuer());
        // Each provider has a path, so that the response of one is not taken for that of another.
        let path = format!("/signin/callback/{callback_path}");
        let provider = provider.filter(|provider| provider.redirect_url().ends_with(&path));
        let provider = provider.ok_or(ProviderFailure::UnknownProvider)?;
        let callback = SignInCallback::parse(query.unwrap_or_default());
        let callback = callback.map_err(|error| self.rejection(provider, &error))?;
        let identity = self.in_time(provider, provider.finish(pending, &callback)).await?;
        Ok((purpose, identity))
    }

    /// Waits for a provider, but not as long as for a page.
    async fn in_time<T>(
        &self,
        provider: &SignInProvider,
        call: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<T, ProviderFailure> {
        let outcome = tokio::time::timeout(self.timeout, call).await.map_err(|_elapsed| {
            let name = provider.name();
            tracing::warn!(provider = name, people = self.people, "sign-in with a provider failed: no answer in time");
            ProviderFailure::NoAnswer(name.to_owned())
        })?;
        outcome.map_err(|error| self.rejection(provider, &error))
    }

    fn rejection(&self, provider: &SignInProvider, error: &OidcError) -> ProviderFailure {
        let name = provider.name();
        if matches!(error, OidcError::Denied(_)) {
            return ProviderFailure::Canceled(name.to_owned());
        }
        tracing::warn!(provider = name, people = self.people, error = %causes(error), "sign-in with a provider failed");
        ProviderFailure::NotConfirmed(name.to_owned())
    }
}

/// What pages call the account of a person at a provider.
pub(crate) fn label_of(identity: &ExternalIdentity) -> String {
    let label = identity.email.as_deref().or(identity.name.as_deref()).unwrap_or(&identity.subject);
    label.chars().filter(|character| !character.is_control()).take(LABEL_CHARS_MAX).collect()
}
