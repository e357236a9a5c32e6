//! Sign-ins with an OpenID Connect provider that sends prepared responses.

use std::time::Instant;

use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::signer::TokenSigner;
use super::stub_server::StubServer;
use super::{
    ACCESS_TOKEN, CLIENT_ID, CLIENT_SECRET, CODE, ExternalIdentity, OidcError, PendingSignIn, REDIRECT_URL,
    SignInProvider, callback, message, parameter, settings, stored,
};
use crate::time::now_s;

const DISCOVERY: &str = "/.well-known/openid-configuration";

struct StubProvider {
    server: StubServer,
    signer: TokenSigner,
    provider: SignInProvider,
}

impl StubProvider {
    /// Starts a provider with changes to its discovery document.
    async fn start(discovery: Value) -> Self {
        let (server, signer) = (StubServer::start().await, TokenSigner::es256());
        let url = &server.url;
        let mut document = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize?tenant=1"),
            "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/keys"),
        });
        document.as_object_mut().expect("document is an object").extend(discovery.as_object().expect("object").clone());
        server.respond(DISCOVERY, 200, document);
        server.respond("/keys", 200, json!({ "keys": [signer.jwk("1")] }));
        let provider = SignInProvider::oidc(settings(url)).expect("settings are valid");
        Self { server, signer, provider }
    }

    fn claims(&self, pending: &PendingSignIn) -> Value {
        json!({
            "iss": self.server.url,
            "sub": "1234",
            "aud": CLIENT_ID,
            "exp": now_s() + 300,
            "iat": now_s(),
            "nonce": pending.nonce,
        })
    }

    fn respond_with_tokens(&self, claims: &Value) {
        let tokens =
            json!({ "access_token": ACCESS_TOKEN, "token_type": "Bearer", "id_token": self.signer.token(claims) });
        self.server.respond("/token", 200, tokens);
    }

    async fn begin(&self) -> PendingSignIn {
        self.provider.begin().await.expect("sign-in begins").1
    }

    /// Finishes a sign-in with changed claims.
    async fn finish(&self, claims: Value) -> Result<ExternalIdentity, OidcError> {
        let pending = self.begin().await;
        let mut all = self.claims(&pending);
        all.as_object_mut().expect("claims are an object").extend(claims.as_object().expect("object").clone());
        self.respond_with_tokens(&all);
        self.provider.finish(stored(&pending), &callback(&pending)).await
    }
}

#[tokio::test]
async fn authorization_url_requests_a_code_with_pkce() {
    let stub = StubProvider::start(json!({})).await;
    let (url, pending) = stub.provider.begin().await.expect("sign-in begins");
    assert!(url.as_str().starts_with(&format!("{}/authorize?tenant=1&", stub.server.url)), "{url}");
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CLIENT_ID),
        ("redirect_uri", REDIRECT_URL),
        ("scope", "openid email profile"),
        ("state", &pending.state),
        ("nonce", &pending.nonce),
        ("code_challenge", &pending.code_challenge()),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(parameter(&url, name).as_deref(), Some(value), "{name}");
    }
    assert!(!url.as_str().contains(&pending.code_verifier) && !url.as_str().contains("s3cret"));
    assert_eq!(pending.issuer(), stub.server.url);
    stub.begin().await;
    assert_eq!(stub.server.take_requests().len(), 1, "the discovery document is cached");
}

#[tokio::test]
async fn client_authenticates_as_the_provider_announces() {
    for (methods, is_basic) in [
        (json!(null), true),
        (json!(["private_key_jwt", "client_secret_post", "client_secret_basic"]), true),
        (json!(["client_secret_post"]), false),
    ] {
        let stub = StubProvider::start(json!({ "token_endpoint_auth_methods_supported": methods })).await;
        let pending = stub.begin().await;
        stub.respond_with_tokens(&stub.claims(&pending));
        let identity = stub.provider.finish(stored(&pending), &callback(&pending)).await.expect("sign-in succeeds");
        let expected =
            ExternalIdentity { issuer: stub.server.url.clone(), subject: "1234".to_owned(), email: None, name: None };
        assert_eq!(identity, expected);
        let requests = stub.server.take_requests();
        let targets: Vec<_> = requests.iter().map(|request| request.target.as_str()).collect();
        assert_eq!(targets, [DISCOVERY, "/token", "/keys"]);
        let request = &requests[1];
        let header = request.headers.get(AUTHORIZATION).map(|value| value.to_str().expect("header is ASCII"));
        let form = |name: &str| request.form.get(name).map(String::as_str);
        if is_basic {
            // `ipseity+%26+co:s3cret%3A%2B%2F+%25`
            assert_eq!(header, Some("Basic aXBzZWl0eSslMjYrY286czNjcmV0JTNBJTJCJTJGKyUyNQ=="));
            assert_eq!((form("client_id"), form("client_secret")), (None, None));
        } else {
            assert_eq!(header, None);
            assert_eq!((form("client_id"), form("client_secret")), (Some(CLIENT_ID), Some(CLIENT_SECRET)));
        }
        assert_eq!((form("grant_type"), form("code")), (Some("authorization_code"), Some(CODE)));
        assert_eq!((form("redirect_uri"), form("code_verifier")), (Some(REDIRECT_URL), Some(&*pending.code_verifier)));
    }
}

#[tokio::test]
async fn discovery_document_must_be_of_this_issuer_and_complete() {
    let stub = StubProvider::start(json!({})).await;
    let other = StubProvider::start(json!({ "issuer": format!("{}/", stub.server.url) })).await;
    assert!(matches!(other.provider.begin().await.map(drop), Err(OidcError::WrongMetadataIssuer)));
    for (name, value) in [
        ("authorization_endpoint", "http://idp.example/authorize"),
        ("token_endpoint", "http://192.0.2.1/token"),
        ("jwks_uri", "file:///etc/passwd"),
        ("userinfo_endpoint", "/userinfo"),
    ] {
        let stub = StubProvider::start(json!({ name: value })).await;
        let outcome = stub.provider.begin().await.map(drop);
        assert!(matches!(outcome, Err(OidcError::InvalidEndpoint(found)) if found == name), "{name}");
    }
    let stub = StubProvider::start(json!({ "token_endpoint_auth_methods_supported": ["private_key_jwt"] })).await;
    assert!(matches!(stub.provider.begin().await.map(drop), Err(OidcError::UnsupportedClientAuthentication)));

    for (status, body, expected) in [
        (404, String::new(), "the provider's discovery document responded with 404 Not Found"),
        (302, String::new(), "the provider's discovery document responded with 302 Found"),
        (200, "<html>".to_owned(), "the response of the provider's discovery document is malformed"),
        (200, "{}".to_owned(), "the response of the provider's discovery document is malformed"),
        (200, " ".repeat((256 << 10) + 1), "the response of the provider's discovery document is too large"),
    ] {
        stub.server.respond(DISCOVERY, status, body);
        let error = stub.provider.begin().await.map(drop).expect_err("document is not accepted");
        assert_eq!(error.to_string(), expected);
    }
    let requests = stub.server.take_requests();
    assert!(requests.iter().all(|request| request.target == DISCOVERY), "redirects are not followed");
}

#[tokio::test]
async fn failed_token_request_is_explained_without_secrets() {
    let stub = StubProvider::start(json!({})).await;
    let pending = stub.begin().await;
    let no_id_token = "the provider's token endpoint sent no ID token. Check that the client may use OpenID Connect";
    let rejected = |code: &str| {
        format!(
            "the provider's token endpoint rejected the request: {code}. Check the client id, secret and redirect URL"
        )
    };
    for (status, body, expected) in [
        (400, json!({ "error": "invalid_grant", "error_description": CODE }), rejected("invalid_grant")),
        (401, json!({ "error": "invalid_client" }), rejected("invalid_client")),
        (400, json!({ "error": CODE }), rejected("unknown error")),
        (500, json!({}), "the provider's token endpoint responded with 500 Internal Server Error".to_owned()),
        (302, json!({}), "the provider's token endpoint responded with 302 Found".to_owned()),
        (200, json!({}), "the response of the provider's token endpoint is malformed".to_owned()),
        (200, json!({ "access_token": ACCESS_TOKEN }), no_id_token.to_owned()),
        (
            200,
            json!({ "access_token": ACCESS_TOKEN, "id_token": "a.b.c" }),
            "the provider's ID token is not accepted: it is malformed".to_owned(),
        ),
    ] {
        stub.server.respond("/token", status, body);
        let error = stub.provider.finish(stored(&pending), &callback(&pending)).await.expect_err("sign-in fails");
        assert_eq!(message(&error, &pending), expected);
    }
    stub.respond_with_tokens(&stub.claims(&pending));
    for (status, body) in [(500, "{}"), (200, "<html>"), (200, r#"{"keys":{}}"#)] {
        stub.server.respond("/keys", status, body);
        let error = stub.provider.finish(stored(&pending), &callback(&pending)).await.expect_err("sign-in fails");
        assert!(message(&error, &pending).contains("key set (jwks_uri)"), "{error}");
    }
}

#[tokio::test]
async fn sign_in_fails_before_the_code_is_used_if_the_response_is_not_accepted() {
    let stub = StubProvider::start(json!({ "authorization_response_iss_parameter_supported": true })).await;
    let (pending, other) = (stub.begin().await, stub.begin().await);
    let finish = async |callback| stub.provider.finish(stored(&pending), &callback).await.map(drop);
    assert!(matches!(finish(callback(&other)).await, Err(OidcError::WrongState)));
    assert!(matches!(finish(callback(&pending)).await, Err(OidcError::WrongResponseIssuer)));
    let elsewhere = StubProvider::start(json!({})).await;
    let outcome = elsewhere.provider.finish(stored(&pending), &callback(&pending)).await;
    assert!(matches!(outcome, Err(OidcError::WrongProvider)));
    assert_eq!(stub.server.take_requests().len(), 1, "only the discovery document");
    assert_eq!(elsewhere.server.take_requests().len(), 0);
}

#[tokio::test]
async fn userinfo_completes_an_id_token_without_address() {
    let stub = StubProvider::start(json!({})).await;
    let url = format!("{}/userinfo", stub.server.url);
    let stub_with_userinfo = StubProvider::start(json!({ "userinfo_endpoint": url })).await;
    let userinfo = json!({ "sub": "1234", "email": "ada@example.com", "email_verified": true, "name": "Ada" });
    stub.server.respond("/userinfo", 200, &userinfo);

    let identity = stub_with_userinfo.finish(json!({})).await.expect("sign-in succeeds");
    assert_eq!((identity.email.as_deref(), identity.name.as_deref()), (Some("ada@example.com"), Some("Ada")));
    let [request] = &stub.server.take_requests()[..] else { panic!("one request") };
    assert_eq!(request.headers[AUTHORIZATION], format!("Bearer {ACCESS_TOKEN}"));

    let identity = stub_with_userinfo.finish(json!({ "email": "a@example.com" })).await.expect("sign-in succeeds");
    assert_eq!((identity.email, identity.name), (None, None), "the address of the ID token is not verified");
    assert!(stub.server.take_requests().is_empty());

    stub.server.respond("/userinfo", 200, json!({ "sub": "1235", "email": "ada@example.com", "email_verified": true }));
    assert!(matches!(stub_with_userinfo.finish(json!({})).await, Err(OidcError::WrongUserinfoSubject)));
    stub.server.respond("/userinfo", 401, "{}");
    assert!(matches!(stub_with_userinfo.finish(json!({})).await, Err(OidcError::UnexpectedStatus { .. })));
}

#[tokio::test]
async fn silent_provider_times_out() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("port is free");
    let url = format!("http://{}", listener.local_addr().expect("socket is bound"));
    let provider = SignInProvider::oidc(settings(&url)).expect("settings are valid");
    let start = Instant::now();
    let error = provider.begin().await.map(drop).expect_err("provider is silent");
    assert!((5..20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert!(matches!(error, OidcError::Unreachable { endpoint: "discovery document", .. }), "{error:?}");
    drop(listener);
    assert!(matches!(provider.begin().await.map(drop), Err(OidcError::Unreachable { .. })));
}
