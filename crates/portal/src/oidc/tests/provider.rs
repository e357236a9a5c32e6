//! Sign-ins with an independent provider (npm `oidc-provider`). `just oidc` runs it, and these tests with its URL.

use std::collections::BTreeMap;

use http::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Method, redirect};
use serde_json::{Value, json};
use url::Url;

use super::{
    CLIENT_ID, CLIENT_SECRET, ExternalIdentity, IdTokenError, OidcError, PendingSignIn, REDIRECT_URL, SignInCallback,
    SignInProvider, message, settings, stored,
};

const STEPS_MAX: usize = 10;

/// What a person does at the provider.
#[derive(Clone, Copy)]
enum Visit<'a> {
    SignIn(&'a str),
    Abort,
}

/// A provider of this test alone.
struct RealProvider {
    http: Client,
    issuer: String,
    provider: SignInProvider,
}

impl RealProvider {
    /// `None` if no provider runs.
    async fn create(name: &str) -> Option<Self> {
        let url = std::env::var("IPSEITY_TEST_OIDC_PROVIDER").ok()?;
        let issuer = format!("{url}/{name}");
        let http = Client::builder().redirect(redirect::Policy::none()).no_proxy().build().expect("client is created");
        let provider = SignInProvider::oidc(settings(&issuer)).expect("settings are valid");
        let real = Self { http, issuer, provider };
        let accounts = json!({
            "ada": { "email": "ada@example.com", "email_verified": true, "name": "Ada" },
            "bob": { "email": "ada@example.com", "email_verified": true, "name": "Bob" },
            "eve": { "email": "eve@example.com", "email_verified": false },
        });
        real.change(json!({ "clients": [client(json!({}))], "accounts": accounts })).await;
        Some(real)
    }

    /// Changes the settings of the provider.
    async fn change(&self, settings: Value) {
        let response = self.http.put(&self.issuer).body(settings.to_string()).send().await.expect("provider responds");
        assert_eq!(response.status(), 204);
    }

    /// Signs in up to the response that the browser brings back.
    async fn authorize(&self, visit: Visit<'_>) -> (PendingSignIn, SignInCallback) {
        let (url, pending) = self.provider.begin().await.expect("sign-in begins");
        let query = self.visit(url, visit).await;
        (pending, SignInCallback::parse(&query).expect("query is valid"))
    }

    async fn sign_in(&self, login: &str) -> Result<ExternalIdentity, OidcError> {
        let (pending, callback) = self.authorize(Visit::SignIn(login)).await;
        let outcome = self.provider.finish(stored(&pending), &callback).await;
        if let Err(error) = &outcome {
            message(error, &pending);
        }
        outcome
    }

    /// Follows redirects and fills in forms like a browser. Returns the query of the redirect URL.
    async fn visit(&self, start: Url, visit: Visit<'_>) -> String {
        let (mut url, mut form, mut cookies) = (start, None, BTreeMap::new());
        for _ in 0..STEPS_MAX {
            let header = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
            let method = if form.is_some() { Method::POST } else { Method::GET };
            let request = self.http.request(method, url.clone()).header(COOKIE, header);
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            let response = request.body(form.take().unwrap_or_default()).send().await.expect("provider responds");
            for cookie in response.headers().get_all(SET_COOKIE) {
                let pair = cookie.to_str().expect("cookie is ASCII").split(';').next().unwrap_or_default();
                let (name, value) = pair.split_once('=').expect("cookie has a name and a value");
                cookies.insert(name.to_owned(), value.to_owned());
            }
            if let Some(location) = response.headers().get(LOCATION) {
                url = url.join(location.to_str().expect("location is ASCII")).expect("location is a URL");
                if url.as_str().starts_with(REDIRECT_URL) {
                    return url.query().unwrap_or_default().to_owned();
                }
                continue;
            }
            let page = response.text().await.expect("page is text");
            match visit {
                Visit::Abort => url = Url::parse(&format!("{url}/abort")).expect("URL is valid"),
                Visit::SignIn(login) if page.contains(r#"name="prompt" value="login""#) => {
                    form = Some(format!("prompt=login&login={login}&password=any"));
                }
                Visit::SignIn(_) => {
                    assert!(page.contains(r#"name="prompt" value="consent""#), "{page}");
                    form = Some("prompt=consent".to_owned());
                }
            }
        }
        panic!("the provider did not redirect to the client");
    }
}

/// Metadata of the client with changes.
fn client(changes: Value) -> Value {
    let mut client = json!({
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "redirect_uris": [REDIRECT_URL],
    });
    client.as_object_mut().expect("metadata is an object").extend(changes.as_object().expect("object").clone());
    client
}

fn identity(real: &RealProvider, subject: &str, email: Option<&str>, name: Option<&str>) -> ExternalIdentity {
    ExternalIdentity {
        issuer: real.issuer.clone(),
        subject: subject.to_owned(),
        email: email.map(str::to_owned),
        name: name.map(str::to_owned),
    }
}

#[tokio::test]
async fn real_provider_signs_people_in() {
    let Some(real) = RealProvider::create("people").await else { return };
    let signed_in = real.sign_in("ada").await.expect("sign-in succeeds");
    assert_eq!(signed_in, identity(&real, "ada", Some("ada@example.com"), Some("Ada")));
    let signed_in = real.sign_in("eve").await.expect("sign-in succeeds");
    assert_eq!(signed_in, identity(&real, "eve", None, None), "the address is not verified");
    // Another person with the same address.
    let signed_in = real.sign_in("bob").await.expect("sign-in succeeds");
    assert_eq!(signed_in, identity(&real, "bob", Some("ada@example.com"), Some("Bob")));
    // The address changes.
    real.change(json!({ "accounts": { "ada": { "email": "lovelace@example.com", "email_verified": true } } })).await;
    let signed_in = real.sign_in("ada").await.expect("sign-in succeeds");
    assert_eq!(signed_in, identity(&real, "ada", Some("lovelace@example.com"), None));
}

#[tokio::test]
async fn real_provider_signs_with_every_algorithm_and_reads_both_forms_of_the_secret() {
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        for method in ["client_secret_basic", "client_secret_post"] {
            // With the last setting, ID tokens contain the address, and the userinfo endpoint is not announced.
            for has_userinfo in [true, false] {
                let name = format!("{algorithm}_{method}_{has_userinfo}");
                let Some(real) = RealProvider::create(&name).await else { return };
                let metadata = json!({
                    "id_token_signed_response_alg": algorithm,
                    "token_endpoint_auth_method": method,
                });
                let configuration = json!({
                    "clientAuthMethods": [method],
                    "conformIdTokenClaims": has_userinfo,
                    "features": { "userinfo": { "enabled": has_userinfo } },
                });
                real.change(json!({ "clients": [client(metadata)], "configuration": configuration })).await;
                let signed_in = real.sign_in("ada").await.expect("sign-in succeeds");
                assert_eq!(signed_in, identity(&real, "ada", Some("ada@example.com"), Some("Ada")), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn real_provider_rotates_its_keys_during_a_sign_in() {
    let Some(real) = RealProvider::create("rotation").await else { return };
    real.sign_in("ada").await.expect("sign-in succeeds");
    let (pending, callback) = real.authorize(Visit::SignIn("ada")).await;
    real.change(json!({ "rotate": true })).await;
    real.provider.finish(pending, &callback).await.expect("the new keys are read");
    real.sign_in("ada").await.expect("the new keys are cached");
}

#[tokio::test]
async fn real_provider_with_wrong_claims_is_rejected() {
    let Some(real) = RealProvider::create("claims").await else { return };
    real.change(json!({ "claims": { "email": "ada@example.com", "email_verified": true } })).await;
    real.sign_in("ada").await.expect("replaced claims are signed");
    for (claims, expected) in [
        (json!({ "iss": "https://idp.example" }), IdTokenError::WrongIssuer),
        (json!({ "aud": "other" }), IdTokenError::WrongAudience),
        (json!({ "aud": [CLIENT_ID, "other"] }), IdTokenError::WrongAuthorizedParty),
        (json!({ "nonce": "other" }), IdTokenError::WrongNonce),
        (json!({ "exp": 1_700_000_000 }), IdTokenError::Expired),
        (json!({ "iat": 4_000_000_000_u64 }), IdTokenError::NotYetValid),
    ] {
        real.change(json!({ "claims": claims })).await;
        let outcome = real.sign_in("ada").await;
        assert!(matches!(outcome, Err(OidcError::IdToken(error)) if error == expected), "{claims}: {outcome:?}");
    }
}

#[tokio::test]
async fn real_provider_with_another_issuer_is_rejected() {
    let Some(real) = RealProvider::create("issuer").await else { return };
    real.change(json!({ "discovery": { "issuer": format!("{}/", real.issuer) } })).await;
    assert!(matches!(real.provider.begin().await.map(drop), Err(OidcError::WrongMetadataIssuer)));
    real.change(json!({ "discovery": {} })).await;

    // A response of another provider to the state of this one.
    let other = RealProvider::create("issuer2").await.expect("a provider runs");
    let (mut pending, _) = real.authorize(Visit::SignIn("ada")).await;
    let (other_pending, other_callback) = other.authorize(Visit::SignIn("ada")).await;
    pending.state = other_pending.state;
    let outcome = real.provider.finish(pending, &other_callback).await;
    assert!(matches!(outcome, Err(OidcError::WrongResponseIssuer)), "{outcome:?}");
}

#[tokio::test]
async fn real_provider_rejects_replayed_codes_and_wrong_secrets() {
    let Some(real) = RealProvider::create("replay").await else { return };
    let rejected = |outcome: Result<ExternalIdentity, OidcError>, code: &str| {
        let error = outcome.expect_err("sign-in fails");
        assert!(matches!(&error, OidcError::TokenRejected(found) if found.to_string() == code), "{error:?}");
    };
    let (pending, callback) = real.authorize(Visit::SignIn("ada")).await;
    real.provider.finish(stored(&pending), &callback).await.expect("sign-in succeeds");
    rejected(real.provider.finish(pending, &callback).await, "invalid_grant");

    let (mut pending, callback) = real.authorize(Visit::SignIn("ada")).await;
    pending.code_verifier = "A".repeat(43);
    rejected(real.provider.finish(pending, &callback).await, "invalid_grant");

    let (mut pending, callback) = real.authorize(Visit::SignIn("ada")).await;
    pending.nonce = "other".to_owned();
    let outcome = real.provider.finish(pending, &callback).await;
    assert!(matches!(outcome, Err(OidcError::IdToken(IdTokenError::WrongNonce))), "{outcome:?}");

    let (mut pending, callback) = real.authorize(Visit::SignIn("ada")).await;
    pending.state = "other".to_owned();
    assert!(matches!(real.provider.finish(pending, &callback).await, Err(OidcError::WrongState)));

    real.change(json!({ "clients": [client(json!({ "client_secret": "changed" }))] })).await;
    rejected(real.sign_in("ada").await, "invalid_client");
}

#[tokio::test]
async fn real_provider_reports_an_aborted_sign_in() {
    let Some(real) = RealProvider::create("abort").await else { return };
    let (pending, callback) = real.authorize(Visit::Abort).await;
    let error = real.provider.finish(stored(&pending), &callback).await.expect_err("sign-in fails");
    assert_eq!(message(&error, &pending), "the provider did not complete the sign-in: access_denied");
}
