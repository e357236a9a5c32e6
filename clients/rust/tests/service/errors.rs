//! Every error status of the service maps to its kind, after a single request.

use std::time::{Duration, SystemTime};

use ipseity_client::{ApiError, ApiErrorKind, Client, Error, Ip, RateLimit};
use ipseity_domain::Scope;
use ipseity_testkit::CommandOutput;

use crate::counting_proxy::CountingProxy;
use crate::{base_url, deployment, exhausted_key, failing_deployment, issue_key, send_lookups};

const UNKNOWN_KEY: &str = "ips_000000000000000000000000000000000000000000000000";

/// Looks up through the proxy and checks that it got one request.
async fn lookup_error(proxy: &CountingProxy, path: &str, key: &str) -> ApiError {
    let before = proxy.request_count();
    let client = Client::<Ip>::open(&format!("{}{path}", proxy.url()), key).expect("create a client");
    let error = unwrap_api_error(client.lookup().await);
    assert_eq!(proxy.request_count() - before, 1, "{error}");
    error
}

fn unwrap_api_error<A: std::fmt::Debug>(outcome: Result<A, Error>) -> ApiError {
    let error = outcome.expect_err("the lookup fails");
    let Error::Api(api_error) = error else { panic!("{error}") };
    *api_error
}

/// Checks the fields that every error of the service has.
#[track_caller]
fn assert_api_error(error: &ApiError, status: u16, code: &str, anchor: &str) {
    assert_eq!((error.status, error.code.as_str()), (status, code));
    assert!(error.docs.ends_with(&format!("#{anchor}")) && error.message.ends_with('.'), "{error:?}");
    assert_eq!(error.request_id.as_ref().map(String::len), Some(16));
    assert_eq!(error.retry_after.is_some(), status == 429);
}

#[track_caller]
fn assert_rate_limit(error: &ApiError, rate_limit: &RateLimit, limit: u64) {
    assert_eq!((rate_limit.limit, rate_limit.remaining), (limit, 0));
    let to_reset = rate_limit.reset.duration_since(SystemTime::now()).expect("reset is in the future");
    let difference = to_reset.abs_diff(error.retry_after.expect("Retry-After is set"));
    assert!(difference < Duration::from_secs(5), "{difference:?}");
}

async fn passthrough_proxy() -> CountingProxy {
    CountingProxy::start(vec![deployment().await.nodes[0].http()], |text| text).await
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_401_to_missing_and_invalid_key() {
    let proxy = passthrough_proxy().await;
    let missing = lookup_error(&proxy, "", "").await;
    assert_api_error(&missing, 401, "missing_api_key", "missing_api_key");
    assert_eq!(missing.kind, ApiErrorKind::MissingKey);
    let invalid = lookup_error(&proxy, "", UNKNOWN_KEY).await;
    assert_api_error(&invalid, 401, "invalid_api_key", "invalid_api_key");
    assert_eq!(invalid.kind, ApiErrorKind::InvalidKey);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_403_to_inactive_key() {
    let (deployment, proxy) = (deployment().await, passthrough_proxy().await);
    let key = issue_key(deployment, Scope::Ip).await;
    deployment
        .cli(&["key", "deactivate", &key.id])
        .await
        .and_then(CommandOutput::ensure_success)
        .expect("deactivate the key");
    let inactive = lookup_error(&proxy, "", &key.key).await;
    assert_api_error(&inactive, 403, "inactive_api_key", "inactive-keys");
    assert_eq!(inactive.kind, ApiErrorKind::InactiveKey);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_429_to_burst_limit_then_403_to_paused_key() {
    let (deployment, proxy) = (deployment().await, passthrough_proxy().await);
    let key = issue_key(deployment, Scope::Ip).await;
    send_lookups(deployment, &key, 300).await;
    let burst = lookup_error(&proxy, "", &key.key).await;
    assert_api_error(&burst, 429, "rate_limit_exceeded", "burst-limit");
    let ApiErrorKind::BurstLimit { rate_limit } = &burst.kind else { panic!("{burst:?}") };
    assert_rate_limit(&burst, rate_limit, 300);
    assert_eq!(burst.retry_after, Some(Duration::from_secs(60)));
    let paused = lookup_error(&proxy, "", &key.key).await;
    assert_api_error(&paused, 403, "inactive_api_key", "paused-keys");
    assert_eq!(paused.kind, ApiErrorKind::PausedKey);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_429_to_daily_quota() {
    let (deployment, proxy) = (deployment().await, passthrough_proxy().await);
    let error = lookup_error(&proxy, "", &exhausted_key(deployment).await.0.key).await;
    assert_api_error(&error, 429, "rate_limit_exceeded", "daily-quota");
    let ApiErrorKind::DailyQuota { rate_limit, enterprise } = &error.kind else { panic!("{error:?}") };
    assert_rate_limit(&error, rate_limit, 1);
    assert!(enterprise.ends_with("/enterprise"));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_429_to_demo_quota() {
    // A separate deployment, because other tests use the demo too and a node caches that its quota is exhausted.
    let deployment = crate::start_deployment().await;
    let mut caller = deployment.nodes[0].client();
    while caller.get("/api/v1/ip/demo", &[]).await.expect("response").status == 200 {}
    let error = unwrap_api_error(Client::open_demo(&base_url(&deployment)).expect("create a client").lookup().await);
    assert_api_error(&error, 429, "rate_limit_exceeded", "demo-quota");
    let ApiErrorKind::DemoQuota { rate_limit, signup } = &error.kind else { panic!("{error:?}") };
    assert_rate_limit(&error, rate_limit, 1_000);
    assert!(signup.ends_with("/signup"));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_404_405_and_414_to_their_kinds() {
    let (deployment, proxy) = (deployment().await, passthrough_proxy().await);
    let key = issue_key(deployment, Scope::Ip).await.key;
    let not_found = lookup_error(&proxy, "/nowhere", &key).await;
    assert_api_error(&not_found, 404, "not_found", "not_found");
    assert_eq!(not_found.kind, ApiErrorKind::NotFound);
    let too_long = lookup_error(&proxy, &format!("/{}", "x".repeat(5_000)), &key).await;
    assert_api_error(&too_long, 414, "uri_too_long", "bad_request");
    assert_eq!(too_long.kind, ApiErrorKind::UriTooLong);
    let post_proxy =
        CountingProxy::start(vec![deployment.nodes[0].http()], |text| text.replacen("GET /", "POST /", 1)).await;
    let not_allowed = lookup_error(&post_proxy, "", &key).await;
    assert_api_error(&not_allowed, 405, "method_not_allowed", "method_not_allowed");
    assert_eq!(not_allowed.kind, ApiErrorKind::MethodNotAllowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_400_and_431() {
    let (deployment, proxy) = (deployment().await, passthrough_proxy().await);
    let garbling_proxy =
        CountingProxy::start(vec![deployment.nodes[0].http()], |text| text.replacen("\r\naccept:", "\r\naccept ", 1))
            .await;
    let garbled = lookup_error(&garbling_proxy, "", UNKNOWN_KEY).await;
    let large = lookup_error(&proxy, "", &"x".repeat(20_000)).await;
    assert_api_error(&garbled, 400, "bad_request", "bad_request");
    assert_eq!(garbled.kind, ApiErrorKind::BadRequest);
    assert_api_error(&large, 431, "headers_too_large", "bad_request");
    assert_eq!(large.kind, ApiErrorKind::HeadersTooLarge);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_maps_500_without_postgres_and_redis() {
    let (deployment, key) = failing_deployment().await;
    let keyed =
        Client::<Ip>::open(&base_url(deployment), &key.key).expect("create a client").retry_budget(0).lookup().await;
    let demo = Client::open_demo(&base_url(deployment)).expect("create a client").retry_budget(0).lookup().await;
    for error in [unwrap_api_error(keyed), unwrap_api_error(demo)] {
        assert_api_error(&error, 500, "internal_error", "internal_error");
        assert_eq!(error.kind, ApiErrorKind::Internal);
    }
}
