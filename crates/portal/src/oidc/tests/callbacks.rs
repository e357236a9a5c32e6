//! Responses that providers send by the browser.

use super::super::callback::ResponseIssuer;
use super::{CODE, OidcError, PendingSignIn, SignInCallback, message};

const ISSUER: &str = "https://idp.example";

fn verify(pending: &PendingSignIn, query: &str, is_required: bool) -> Result<String, OidcError> {
    let callback = SignInCallback::parse(query)?;
    callback.verify(pending, &ResponseIssuer { value: ISSUER, is_required }).map(str::to_owned)
}

#[test]
fn code_is_accepted_only_with_the_state() {
    let pending = PendingSignIn::generate(ISSUER);
    let state = &pending.state;
    assert_eq!(verify(&pending, &format!("state={state}&code={CODE}&extra=1&extra=2"), false).expect("accepted"), CODE);
    let other = PendingSignIn::generate(ISSUER).state;
    for state in ["", &other, &state[1..], &state[..42], &format!("{state}A"), &state.to_lowercase()] {
        for query in [format!("code={CODE}&state={state}"), format!("error=access_denied&state={state}")] {
            assert!(matches!(verify(&pending, &query, false), Err(OidcError::WrongState)), "{query}");
        }
    }
    assert!(matches!(verify(&pending, &format!("code={CODE}"), false), Err(OidcError::WrongState)));
    for query in [format!("state={state}"), format!("state={state}&code=")] {
        assert!(matches!(verify(&pending, &query, false), Err(OidcError::MissingCode)), "{query}");
    }
}

#[test]
fn parameters_may_not_repeat() {
    for query in ["code=a&code=a", "state=a&code=b&state=a", "iss=a&iss=b", "error=a&error=b", "code=a&c%6fde=a"] {
        assert!(matches!(SignInCallback::parse(query), Err(OidcError::RepeatedParameter)), "{query}");
    }
}

#[test]
fn response_names_the_issuer_if_the_provider_announces_it() {
    let pending = PendingSignIn::generate(ISSUER);
    let query = format!("state={}&code={CODE}", pending.state);
    let with_issuer = |issuer: &str| format!("{query}&iss={issuer}");
    assert!(verify(&pending, &query, false).is_ok());
    assert!(matches!(verify(&pending, &query, true), Err(OidcError::WrongResponseIssuer)));
    for is_required in [false, true] {
        assert!(verify(&pending, &with_issuer("https%3A%2F%2Fidp.example"), is_required).is_ok());
        for issuer in ["", "https://attacker.example", "https://idp.example/", "https://IDP.example"] {
            let outcome = verify(&pending, &with_issuer(issuer), is_required);
            assert!(matches!(outcome, Err(OidcError::WrongResponseIssuer)), "{issuer}");
        }
    }
}

#[test]
fn error_of_the_provider_is_repeated_only_if_it_is_a_code() {
    let pending = PendingSignIn::generate(ISSUER);
    let denied = |error: &str| {
        let query = format!("state={}&error={error}&code={CODE}&error_description=Some+text", pending.state);
        message(&verify(&pending, &query, false).expect_err("denied"), &pending)
    };
    assert_eq!(denied("access_denied"), "the provider did not complete the sign-in: access_denied");
    for error in ["", "%3Cb%3E", "a%0Ab", "eyJhbGciOi", "Access denied", &"a".repeat(65)] {
        assert_eq!(denied(error), "the provider did not complete the sign-in: unknown error", "{error}");
    }
}
