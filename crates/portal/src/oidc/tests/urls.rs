//! URLs that providers may have.

use super::super::http_client::{ProviderClient, parse_url};
use super::{GithubSettings, OidcError, REDIRECT_URL, SignInProvider, settings};

#[test]
fn urls_are_https_except_on_this_machine() {
    for url in
        ["https://idp.example", "https://127.0.0.1:1/a", "http://127.0.0.1", "http://[::1]:8080", "http://localhost"]
    {
        assert!(parse_url(url).is_some(), "{url}");
    }
    for url in [
        "http://idp.example",
        "http://127.0.0.1.example",
        "http://localhost.example",
        "http://192.0.2.1",
        "http://[::ffff:7f00:1]",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "data:text/plain,a",
        "//idp.example",
        "",
    ] {
        assert!(parse_url(url).is_none(), "{url}");
        assert!(matches!(SignInProvider::oidc(settings(url)), Err(OidcError::InvalidUrl("the issuer"))), "{url}");
    }
    for url in ["https://idp.example/?a", "https://idp.example/#a"] {
        assert!(matches!(SignInProvider::oidc(settings(url)), Err(OidcError::InvalidUrl("the issuer"))), "{url}");
    }
}

#[test]
fn provider_on_the_internet_cannot_name_endpoints_on_this_machine() {
    for (base, endpoint, is_allowed) in [
        ("https://idp.example", "https://login.example/token", true),
        ("https://idp.example", "http://127.0.0.1/token", false),
        ("https://idp.example", "http://idp.example/token", false),
        ("http://127.0.0.1", "http://127.0.0.1:2/token", true),
        ("http://127.0.0.1", "http://idp.example/token", false),
    ] {
        let client = ProviderClient::open(&parse_url(base).expect("URL is valid")).expect("client is created");
        assert_eq!(client.parse_endpoint(endpoint).is_some(), is_allowed, "{base} {endpoint}");
    }
}

#[test]
fn settings_are_shown_without_secrets() {
    let oidc = settings("https://idp.example");
    let github = GithubSettings {
        client_id: "id".to_owned(),
        client_secret: "s3cret".to_owned(),
        redirect_url: REDIRECT_URL.to_owned(),
    };
    let shown = format!("{oidc:?} {github:?}");
    assert!(!shown.contains("s3cret") && shown.contains("https://idp.example"), "{shown}");
    let provider = SignInProvider::oidc(oidc).expect("settings are valid");
    assert_eq!((provider.name(), provider.issuer()), ("Example", "https://idp.example"));
    let provider = SignInProvider::github(github).expect("settings are valid");
    assert_eq!((provider.name(), provider.issuer()), ("GitHub", "https://github.com"));
    for url in ["", "http://portal.example/callback"] {
        let invalid = super::OidcProviderSettings { redirect_url: url.to_owned(), ..settings("https://idp.example") };
        assert!(matches!(SignInProvider::oidc(invalid), Err(OidcError::InvalidUrl("the redirect URL"))), "{url}");
    }
}
