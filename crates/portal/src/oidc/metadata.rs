//! The discovery document of a provider (OpenID Connect Discovery).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde::Deserialize;
use url::Url;

use super::error::OidcError;
use super::http_client::ProviderClient;

/// How long a discovery document is used before it is read again.
const AGE_MAX: Duration = Duration::from_secs(3600);
const ENDPOINT: &str = "discovery document";

/// What a provider announces.
pub(super) struct ProviderMetadata {
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) jwks_uri: Url,
    pub(super) userinfo_endpoint: Option<Url>,
    pub(super) client_authentication: ClientAuthentication,
    /// Whether responses to the browser name the issuer (RFC 9207).
    pub(super) sends_issuer: bool,
}

/// How the client secret is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientAuthentication {
    Basic,
    Post,
}

#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// The current discovery document.
#[derive(Default)]
pub(super) struct MetadataCache(Mutex<Option<(Arc<ProviderMetadata>, Instant)>>);

impl MetadataCache {
    pub(super) async fn get(&self, client: &ProviderClient, issuer: &str) -> Result<Arc<ProviderMetadata>, OidcError> {
        if let Some((metadata, _)) = self.lock().as_ref().filter(|(_, fetched_at)| fetched_at.elapsed() < AGE_MAX) {
            return Ok(Arc::clone(metadata));
        }
        // Not locked, so that visitors do not wait for each other while the provider is unreachable.
        let metadata = Arc::new(discover(client, issuer).await?);
        *self.lock() = Some((Arc::clone(&metadata), Instant::now()));
        Ok(metadata)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Arc<ProviderMetadata>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn discover(client: &ProviderClient, issuer: &str) -> Result<ProviderMetadata, OidcError> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let url = Url::parse(&url).map_err(|_| OidcError::InvalidUrl("the issuer"))?;
    let document: DiscoveryDocument = client.send(ENDPOINT, client.request(Method::GET, &url)).await?.json()?;
    if document.issuer != issuer {
        return Err(OidcError::WrongMetadataIssuer);
    }
    let endpoint = |name, text: &str| client.parse_endpoint(text).ok_or(OidcError::InvalidEndpoint(name));
    Ok(ProviderMetadata {
        authorization_endpoint: endpoint("authorization_endpoint", &document.authorization_endpoint)?,
        token_endpoint: endpoint("token_endpoint", &document.token_endpoint)?,
        jwks_uri: endpoint("jwks_uri", &document.jwks_uri)?,
        userinfo_endpoint: match &document.userinfo_endpoint {
            Some(text) => Some(endpoint("userinfo_endpoint", text)?),
            None => None,
        },
        client_authentication: ClientAuthentication::choose(document.token_endpoint_auth_methods_supported.as_deref())?,
        sends_issuer: document.authorization_response_iss_parameter_supported,
    })
}

impl ClientAuthentication {
    /// A provider that announces no methods supports `client_secret_basic`.
    fn choose(announced: Option<&[String]>) -> Result<Self, OidcError> {
        let supports = |name: &str| announced.is_none_or(|methods| methods.iter().any(|method| method == name));
        if supports("client_secret_basic") {
            Ok(Self::Basic)
        } else if supports("client_secret_post") {
            Ok(Self::Post)
        } else {
            Err(OidcError::UnsupportedClientAuthentication)
        }
    }
}
