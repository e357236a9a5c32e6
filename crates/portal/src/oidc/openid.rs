//! Sign-in with OpenID Connect: the authorization code flow (OpenID Connect Core, section 3.1).

use std::sync::Arc;
use std::time::Instant;

use reqwest::Method;
use url::Url;

use super::authorization_url::authorization_url;
use super::callback::{ResponseIssuer, SignInCallback};
use super::error::OidcError;
use super::http_client::{ProviderClient, parse_url};
use super::id_token::{ExpectedClaims, ProfileClaims, UnverifiedIdToken};
use super::identity::ExternalIdentity;
use super::metadata::{MetadataCache, ProviderMetadata};
use super::pending::PendingSignIn;
use super::settings::OidcProviderSettings;
use super::signing_keys::SigningKeyCache;
use super::token_request::{TokenRequest, Tokens};
use crate::time::now_s;

const SCOPE: &str = "openid email profile";
const KEYS_ENDPOINT: &str = "key set (jwks_uri)";
const USERINFO_ENDPOINT: &str = "userinfo endpoint";

/// An OpenID Connect provider.
pub(super) struct OidcProvider {
    settings: OidcProviderSettings,
    client: ProviderClient,
    metadata: MetadataCache,
    keys: SigningKeyCache,
}

impl OidcProvider {
    pub(super) fn open(settings: OidcProviderSettings) -> Result<Self, OidcError> {
        let issuer = parse_url(&settings.issuer).filter(|url| url.query().is_none() && url.fragment().is_none());
        let client = ProviderClient::open(&issuer.ok_or(OidcError::InvalidUrl("the issuer"))?)?;
        parse_url(&settings.redirect_url).ok_or(OidcError::InvalidUrl("the redirect URL"))?;
        Ok(Self { settings, client, metadata: MetadataCache::default(), keys: SigningKeyCache::default() })
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    pub(super) fn redirect_url(&self) -> &str {
        &self.settings.redirect_url
    }

    pub(super) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    pub(super) async fn begin(&self, pending: &PendingSignIn) -> Result<Url, OidcError> {
        let metadata = self.metadata().await?;
        let OidcProviderSettings { client_id, redirect_url, .. } = &self.settings;
        let mut url = authorization_url(&metadata.authorization_endpoint, client_id, redirect_url, SCOPE, pending);
        url.query_pairs_mut().append_pair("nonce", &pending.nonce);
        Ok(url)
    }

    pub(super) async fn finish(
        &self,
        pending: &PendingSignIn,
        callback: &SignInCallback,
    ) -> Result<ExternalIdentity, OidcError> {
        let metadata = self.metadata().await?;
        let response_issuer = ResponseIssuer { value: self.issuer(), is_required: metadata.sends_issuer };
        let code = callback.verify(pending, &response_issuer)?;
        let OidcProviderSettings { client_id, client_secret, redirect_url, .. } = &self.settings;
        let request = TokenRequest {
            client_id,
            client_secret,
            redirect_url,
            code,
            code_verifier: &pending.code_verifier,
            authentication: metadata.client_authentication,
        };
        let tokens = request.send(&self.client, &metadata.token_endpoint).await?;
        let profile = self.verify_id_token(pending, &metadata, &tokens).await?;
        let profile = self.complete(profile, &metadata, &tokens).await?;
        Ok(ExternalIdentity {
            issuer: self.issuer().to_owned(),
            email: profile.verified_email(),
            name: profile.name(),
            subject: profile.sub,
        })
    }

    async fn metadata(&self) -> Result<Arc<ProviderMetadata>, OidcError> {
        self.metadata.get(&self.client, &self.settings.issuer).await
    }

    async fn verify_id_token(
        &self,
        pending: &PendingSignIn,
        metadata: &ProviderMetadata,
        tokens: &Tokens,
    ) -> Result<ProfileClaims, OidcError> {
        let token = tokens.id_token.as_deref().ok_or(OidcError::MissingIdToken)?;
        let token = UnverifiedIdToken::parse(token)?;
        let fetch = async {
            self.client.send(KEYS_ENDPOINT, self.client.request(Method::GET, &metadata.jwks_uri)).await?.json()
        };
        let key = self.keys.find(token.key_id(), token.algorithm(), Instant::now(), fetch).await?;
        let expected = ExpectedClaims {
            issuer: self.issuer(),
            client_id: &self.settings.client_id,
            nonce: &pending.nonce,
            now_s: now_s(),
        };
        Ok(token.verify(&key, &expected)?)
    }

    /// Reads the profile from the userinfo endpoint if the ID token has no address, which is up to the provider
    /// (OpenID Connect Core, section 5.4).
    async fn complete(
        &self,
        profile: ProfileClaims,
        metadata: &ProviderMetadata,
        tokens: &Tokens,
    ) -> Result<ProfileClaims, OidcError> {
        let Some(endpoint) = metadata.userinfo_endpoint.as_ref().filter(|_| !profile.has_email()) else {
            return Ok(profile);
        };
        let request = self.client.request(Method::GET, endpoint).bearer_auth(&tokens.access_token);
        let userinfo: ProfileClaims = self.client.send(USERINFO_ENDPOINT, request).await?.json()?;
        if userinfo.sub == profile.sub { Ok(userinfo) } else { Err(OidcError::WrongUserinfoSubject) }
    }
}
