//! Sign-ins with providers that the tests control.

use ipseity_domain::causes;
use url::Url;

use super::error::{IdTokenError, OidcError};
use super::pending::PendingSignIn;
use super::settings::{GithubSettings, OidcProviderSettings};
use super::{ExternalIdentity, SignInCallback, SignInProvider};

mod callbacks;
mod forgeries;
mod github;
mod openid;
mod provider;
mod signer;
mod signing_keys;
mod stub_server;
mod urls;

const CLIENT_ID: &str = "ipseity & co";
/// Characters that are encoded in forms.
const CLIENT_SECRET: &str = "s3cret:+/ %";
const REDIRECT_URL: &str = "http://127.0.0.1:1/callback";
const CODE: &str = "4uth0rizati0n-c0de";
const ACCESS_TOKEN: &str = "4ccess-t0ken";

fn settings(issuer: &str) -> OidcProviderSettings {
    OidcProviderSettings {
        name: "Example".to_owned(),
        issuer: issuer.to_owned(),
        client_id: CLIENT_ID.to_owned(),
        client_secret: CLIENT_SECRET.to_owned(),
        redirect_url: REDIRECT_URL.to_owned(),
    }
}

/// The pending sign-in as it is read back from its stored form.
fn stored(pending: &PendingSignIn) -> PendingSignIn {
    serde_json::from_value(serde_json::to_value(pending).expect("state is serialized")).expect("state is valid")
}

/// The response of a provider that signed the person in.
fn callback(pending: &PendingSignIn) -> SignInCallback {
    SignInCallback::parse(&format!("code={CODE}&state={}", pending.state)).expect("query is valid")
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The messages of an error, which contain no secret.
fn message(error: &OidcError, pending: &PendingSignIn) -> String {
    let texts = causes(error).to_string();
    let all = format!("{texts} {error:?}");
    for secret in [CLIENT_SECRET, CODE, ACCESS_TOKEN, &pending.state, &pending.nonce, &pending.code_verifier] {
        assert!(!all.contains(secret), "{all}");
    }
    texts
}
