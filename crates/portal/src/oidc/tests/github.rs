//! Sign-ins with a server that behaves like GitHub.

use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use serde_json::{Value, json};

use super::super::ProviderKind;
use super::super::github::GithubProvider;
use super::stub_server::StubServer;
use super::{
    ACCESS_TOKEN, CLIENT_ID, CLIENT_SECRET, CODE, ExternalIdentity, GithubSettings, OidcError, REDIRECT_URL,
    SignInCallback, SignInProvider, callback, message, parameter, stored,
};

const TOKEN: &str = "/login/oauth/access_token";
const EMAILS: &str = "/user/emails?per_page=100";

struct FakeGithub {
    server: StubServer,
    provider: SignInProvider,
}

impl FakeGithub {
    async fn start() -> Self {
        let server = StubServer::start().await;
        let settings = GithubSettings {
            client_id: CLIENT_ID.to_owned(),
            client_secret: CLIENT_SECRET.to_owned(),
            redirect_url: REDIRECT_URL.to_owned(),
        };
        let github = GithubProvider::with_hosts(settings, &server.url, &server.url).expect("URLs are valid");
        server.respond(
            TOKEN,
            200,
            json!({ "access_token": ACCESS_TOKEN, "token_type": "bearer", "scope": "user:email" }),
        );
        server.respond("/user", 200, json!({ "id": 583_231, "login": "octocat", "name": "The Octocat" }));
        server.respond(EMAILS, 200, emails(&[("ada@example.com", true, true)]));
        Self { server, provider: SignInProvider(ProviderKind::Github(Box::new(github))) }
    }

    async fn sign_in(&self) -> Result<ExternalIdentity, OidcError> {
        let (_, pending) = self.provider.begin().await.expect("sign-in begins");
        let outcome = self.provider.finish(stored(&pending), &callback(&pending)).await;
        if let Err(error) = &outcome {
            message(error, &pending);
        }
        outcome
    }
}

fn emails(list: &[(&str, bool, bool)]) -> Value {
    list.iter()
        .map(|(email, primary, verified)| json!({ "email": email, "primary": primary, "verified": verified }))
        .collect()
}

#[tokio::test]
async fn sign_in_uses_pkce_and_reads_user_and_address() {
    let github = FakeGithub::start().await;
    let (url, pending) = github.provider.begin().await.expect("sign-in begins");
    assert_eq!(url.path(), "/login/oauth/authorize");
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", CLIENT_ID),
        ("redirect_uri", REDIRECT_URL),
        ("scope", "user:email"),
        ("state", &pending.state),
        ("code_challenge", &pending.code_challenge()),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(parameter(&url, name).as_deref(), Some(value), "{name}");
    }
    let identity = github.provider.finish(stored(&pending), &callback(&pending)).await.expect("sign-in succeeds");
    let expected = ExternalIdentity {
        issuer: "https://github.com".to_owned(),
        subject: "583231".to_owned(),
        email: Some("ada@example.com".to_owned()),
        name: Some("The Octocat".to_owned()),
    };
    assert_eq!(identity, expected);

    let [token, user, emails] = &github.server.take_requests()[..] else { panic!("three requests") };
    assert_eq!((&token.method, token.target.as_str()), (&Method::POST, TOKEN));
    assert_eq!(token.headers[ACCEPT], "application/json");
    for (name, value) in [
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
        ("code", CODE),
        ("redirect_uri", REDIRECT_URL),
        ("code_verifier", &pending.code_verifier),
    ] {
        assert_eq!(token.form.get(name).map(String::as_str), Some(value), "{name}");
    }
    for (request, target) in [(user, "/user"), (emails, EMAILS)] {
        assert_eq!((&request.method, request.target.as_str()), (&Method::GET, target));
        assert_eq!(request.headers[AUTHORIZATION], format!("Bearer {ACCESS_TOKEN}"));
        assert!(request.headers.contains_key(USER_AGENT), "GitHub rejects requests without it");
    }
}

#[tokio::test]
async fn only_the_verified_primary_address_counts() {
    let github = FakeGithub::start().await;
    let others = [("old@example.com", false, true), ("ada@example.com", true, true), ("new@example.com", false, false)];
    for (list, email) in [
        (&others[..], Some("ada@example.com")),
        (&[("ada@example.com", true, false)], None),
        (&[("ada@example.com", true, false), ("old@example.com", false, true)], None),
        (&[], None),
    ] {
        github.server.respond(EMAILS, 200, emails(list));
        let identity = github.sign_in().await.expect("sign-in succeeds");
        assert_eq!((identity.email.as_deref(), identity.subject.as_str()), (email, "583231"), "{list:?}");
    }
}

#[tokio::test]
async fn user_without_a_name_has_the_login_as_name() {
    let github = FakeGithub::start().await;
    for name in [json!(null), json!("")] {
        github.server.respond("/user", 200, json!({ "id": 1, "login": "octocat", "name": name }));
        assert_eq!(github.sign_in().await.expect("sign-in succeeds").name.as_deref(), Some("octocat"));
    }
}

#[tokio::test]
async fn errors_of_github_are_explained() {
    let bad_code =
        json!({ "error": "bad_verification_code", "error_description": "The code is incorrect or expired." });
    for (path, status, body, expected) in [
        (TOKEN, 200, bad_code, "token endpoint rejected the request: bad_verification_code"),
        (TOKEN, 200, json!({ "error": "incorrect_client_credentials" }), "incorrect_client_credentials"),
        (TOKEN, 404, json!({ "message": "Not Found" }), "token endpoint responded with 404"),
        (TOKEN, 200, json!({ "token_type": "bearer" }), "token endpoint is malformed"),
        ("/user", 401, json!({ "message": "Bad credentials" }), "user endpoint responded with 401"),
        ("/user", 200, json!({ "id": "583231", "login": "octocat" }), "user endpoint is malformed"),
        ("/user", 200, json!({ "id": -1, "login": "octocat" }), "user endpoint is malformed"),
        (EMAILS, 403, json!({ "message": "Resource not accessible" }), "email endpoint responded with 403"),
        (EMAILS, 404, json!({ "message": "Not Found" }), "email endpoint responded with 404"),
        (EMAILS, 200, json!({}), "email endpoint is malformed"),
        (EMAILS, 302, json!([]), "email endpoint responded with 302"),
    ] {
        let github = FakeGithub::start().await;
        github.server.respond(path, status, &body);
        let error = github.sign_in().await.expect_err("sign-in fails").to_string();
        assert!(error.contains(expected), "{path} {status} {body}: {error}");
    }
}

#[tokio::test]
async fn response_of_github_needs_the_state_and_no_other_issuer() {
    let github = FakeGithub::start().await;
    let (_, pending) = github.provider.begin().await.expect("sign-in begins");
    let finish = async |query: String| {
        let callback = SignInCallback::parse(&query).expect("query is valid");
        github.provider.finish(stored(&pending), &callback).await.map(drop)
    };
    let state = &pending.state;
    assert!(matches!(finish(format!("code={CODE}")).await, Err(OidcError::WrongState)));
    assert!(matches!(finish(format!("state={state}&error=access_denied")).await, Err(OidcError::Denied(_))));
    let outcome = finish(format!("code={CODE}&state={state}&iss=https://attacker.example")).await;
    assert!(matches!(outcome, Err(OidcError::WrongResponseIssuer)));
    assert!(github.server.take_requests().is_empty(), "the code is not used");
    finish(format!("code={CODE}&state={state}&iss=https://github.com/login/oauth")).await.expect("sign-in succeeds");
}
