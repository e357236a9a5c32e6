//! Test keys: made-up callers and errors.

use ipseity_client::{ApiErrorKind, Client, Error, Full, Geo, Ip, KeyScope};
use ipseity_domain::{Scope, test_key};

use crate::{base_url, deployment};

#[test]
fn every_scope_has_the_test_key_of_the_service() {
    for (scope, key) in [(Scope::Ip, Ip::TEST_KEY), (Scope::Geo, Geo::TEST_KEY), (Scope::Full, Full::TEST_KEY)] {
        assert_eq!(key, test_key(scope));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn test_key_returns_the_selected_caller() {
    let client = Client::<Geo>::open(&base_url(deployment().await), Geo::TEST_KEY).expect("create a client");
    let home = client.lookup().await.expect("lookup succeeds").facts;
    let ipv6 = client.clone().test_as("ipv6").lookup().await.expect("lookup succeeds").facts;
    assert_eq!((home.country.as_deref(), home.ipv6), (Some("FR"), None));
    assert_eq!((ipv6.country.as_deref(), ipv6.ip), (Some("JP"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn test_key_returns_the_selected_error() {
    let client = Client::<Ip>::open(&base_url(deployment().await), Ip::TEST_KEY).expect("create a client");
    for (failure, is_expected) in [
        ("burst", (|kind| matches!(kind, ApiErrorKind::BurstLimit { .. })) as fn(&ApiErrorKind) -> bool),
        ("paused", |kind| *kind == ApiErrorKind::PausedKey),
        ("day", |kind| matches!(kind, ApiErrorKind::DailyQuota { .. })),
        ("inactive", |kind| *kind == ApiErrorKind::InactiveKey),
        ("expired", |kind| *kind == ApiErrorKind::ExpiredKey),
        ("origin", |kind| *kind == ApiErrorKind::OriginNotAllowed),
        ("caller", |kind| matches!(kind, ApiErrorKind::CallerLimit { .. })),
        ("ticket", |kind| *kind == ApiErrorKind::InvalidTicket),
        ("500", |kind| *kind == ApiErrorKind::Internal),
        ("unknown", |kind| *kind == ApiErrorKind::BadRequest),
    ] {
        let failing = client.clone().retry_budget(0).test_fail(failure);
        let error = failing.lookup().await.expect_err("the lookup fails");
        let Error::Api(error) = error else { panic!("{error}") };
        assert!(is_expected(&error.kind), "{failure}: {error:?}");
    }
}
