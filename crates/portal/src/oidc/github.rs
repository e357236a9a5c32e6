//! Sign-in with GitHub, which is OAuth 2 without ID tokens: its API tells who signed in.

use http::header::ACCEPT;
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::authorization_url::authorization_url;
use super::callback::{ResponseIssuer, SignInCallback};
use super::error::OidcError;
use super::http_client::{ProviderClient, parse_url};
use super::identity::ExternalIdentity;
use super::metadata::ClientAuthentication;
use super::pending::PendingSignIn;
use super::settings::GithubSettings;
use super::token_request::TokenRequest;

pub(super) const ISSUER: &str = "https://github.com";
const API: &str = "https://api.github.com";
/// What GitHub sends as `iss`, if it does.
const RESPONSE_ISSUER: &str = "https://github.com/login/oauth";
const API_VERSION: &str = "2022-11-28";
const SCOPE: &str = "user:email";

/// GitHub.
pub(super) struct GithubProvider {
    settings: GithubSettings,
    client: ProviderClient,
    authorization_endpoint: Url,
    token_endpoint: Url,
    user_endpoint: Url,
    emails_endpoint: Url,
}

#[derive(Deserialize)]
struct User {
    id: u64,
    login: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct UserEmail {
    email: String,
    primary: bool,
    verified: bool,
}

impl GithubProvider {
    pub(super) fn open(settings: GithubSettings) -> Result<Self, OidcError> {
        Self::with_hosts(settings, ISSUER, API)
    }

    pub(super) fn redirect_url(&self) -> &str {
        &self.settings.redirect_url
    }

    pub(super) fn with_hosts(settings: GithubSettings, web: &str, api: &str) -> Result<Self, OidcError> {
        let endpoint = |base: &str, path| parse_url(&format!("{base}{path}")).ok_or(OidcError::InvalidUrl("GitHub"));
        parse_url(&settings.redirect_url).ok_or(OidcError::InvalidUrl("the redirect URL"))?;
        let authorization_endpoint = endpoint(web, "/login/oauth/authorize")?;
        Ok(Self {
            settings,
            client: ProviderClient::open(&authorization_endpoint)?,
            authorization_endpoint,
            token_endpoint: endpoint(web, "/login/oauth/access_token")?,
            user_endpoint: endpoint(api, "/user")?,
            emails_endpoint: endpoint(api, "/user/emails?per_page=100")?,
        })
    }

    pub(super) fn begin(&self, pending: &PendingSignIn) -> Url {
        let GithubSettings { client_id, redirect_url, .. } = &self.settings;
        authorization_url(&self.authorization_endpoint, client_id, redirect_url, SCOPE, pending)
    }

    pub(super) async fn finish(
        &self,
        pending: &PendingSignIn,
        callback: &SignInCallback,
    ) -> Result<ExternalIdentity, OidcError> {
        let response_issuer = ResponseIssuer { value: RESPONSE_ISSUER, is_required: false };
        let code = callback.verify(pending, &response_issuer)?;
        let GithubSettings { client_id, client_secret, redirect_url } = &self.settings;
        let request = TokenRequest {
            client_id,
            client_secret,
            redirect_url,
            code,
            code_verifier: &pending.code_verifier,
            authentication: ClientAuthentication::Post,
        };
        let tokens = request.send(&self.client, &self.token_endpoint).await?;
        let user: User = self.get("user endpoint", &self.user_endpoint, &tokens.access_token).await?;
        let emails: Vec<UserEmail> = self.get("email endpoint", &self.emails_endpoint, &tokens.access_token).await?;
        let email = emails.into_iter().find(|email| email.primary && email.verified).map(|email| email.email);
        let name = user.name.filter(|name| !name.is_empty()).or(Some(user.login));
        Ok(ExternalIdentity { issuer: ISSUER.to_owned(), subject: user.id.to_string(), email, name })
    }

    async fn get<T: DeserializeOwned>(
        &self,
        endpoint: &'static str,
        url: &Url,
        access_token: &str,
    ) -> Result<T, OidcError> {
        let request = self
            .client
            .request(Method::GET, url)
            .bearer_auth(access_token)
            .header(ACCEPT, "application/vnd.github+json")
            .header("X-GitHub-Api-Version", API_VERSION);
        self.client.send(endpoint, request).await?.json()
    }
}
