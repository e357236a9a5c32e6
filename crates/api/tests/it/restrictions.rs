//! Restricted keys: which requests are refused, and from when on a change counts.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::header::ORIGIN;
use http::{HeaderMap, HeaderValue};
use ipseity_domain::restrictions::network::AllowedNetwork;
use ipseity_domain::restrictions::origin::AllowedOrigin;
use ipseity_domain::{KeyChange, PlaintextKey, Restrictions};
use ipseity_ledger::Published;
use ipseity_store::Actor;
use ipseity_testkit::FaultConfig;

use crate::fixture::{ApiFixture, TestApi, id_of};

const ALLOWED: &str = "https://shop.example";
const OTHER: &str = "https://other.example";
const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

fn allow_origin(origin: &str) -> Restrictions {
    let origins = vec![AllowedOrigin::parse(origin).expect("valid origin")];
    Restrictions { origins, ..Restrictions::default() }
}

impl ApiFixture {
    /// Restricts a key, like the portal: the change is in PostgreSQL and Redis when this returns.
    async fn restrict(&self, key: &PlaintextKey, restrictions: &Restrictions) {
        let change = self.restrict_in_postgres(key, restrictions).await;
        assert_eq!(self.ledger.apply_change(&change).await.expect("Redis answers"), Published::Applied);
    }

    async fn restrict_in_postgres(&self, key: &PlaintextKey, restrictions: &Restrictions) -> KeyChange {
        let restricted = self.store.keys().restrict(Actor::Operator, id_of(key), restrictions, None).await;
        restricted.expect("restrictions are enabled in a new database")
    }
}

impl TestApi {
    /// Makes a lookup from an origin and returns the status and the error code.
    async fn request_from(&self, key: &PlaintextKey, origin: Option<&str>) -> (u16, String) {
        let origin = origin.map(|origin| (ORIGIN, HeaderValue::from_str(origin).expect("valid header")));
        let (status, _, body) = self.send(key, CALLER, origin.into_iter().collect()).await;
        (status, body["error"].as_str().unwrap_or_default().to_owned())
    }
}

fn refused(code: &str) -> (u16, String) {
    (403, code.to_owned())
}

fn admitted() -> (u16, String) {
    (200, String::new())
}

#[tokio::test]
async fn only_pages_of_an_allowed_origin_can_use_the_key() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_key().await;
    fixture.restrict(&key, &allow_origin(ALLOWED)).await;
    assert_eq!(fixture.node.request_from(&key, Some(ALLOWED)).await, admitted());
    for origin in [None, Some("null"), Some(OTHER), Some("https://shop.example."), Some("https://SHOP.example")] {
        assert_eq!(fixture.node.request_from(&key, origin).await, refused("origin_not_allowed"), "{origin:?}");
    }
    let two_lines: HeaderMap = [ALLOWED, ALLOWED].into_iter().fold(HeaderMap::new(), |mut headers, origin| {
        headers.append(ORIGIN, HeaderValue::from_static(origin));
        headers
    });
    assert_eq!(fixture.node.send(&key, CALLER, two_lines).await.0, 403);
    assert_eq!(fixture.charged(&key).await, 1, "refused requests are not counted");
    let wrong = PlaintextKey::rotate(id_of(&key), || fastrand::u8(..));
    for origin in [None, Some(OTHER), Some(ALLOWED)] {
        let (status, code) = fixture.node.request_from(&wrong, origin).await;
        assert_eq!((status, code.as_str()), (401, "invalid_api_key"), "a wrong secret looks like any other");
    }
}

#[tokio::test]
async fn every_change_counts_from_the_next_request() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    for change in 0..100 {
        let (allowed, other) = if change % 2 == 0 { (ALLOWED, OTHER) } else { (OTHER, ALLOWED) };
        fixture.restrict(&key, &allow_origin(allowed)).await;
        assert_eq!(fixture.node.request_from(&key, Some(other)).await, refused("origin_not_allowed"), "{change}");
        assert_eq!(fixture.node.request_from(&key, Some(allowed)).await, admitted(), "{change}");
    }
    fixture.restrict(&key, &Restrictions::default()).await;
    assert_eq!(fixture.node.request_from(&key, None).await, admitted());
}

#[tokio::test]
async fn change_that_redis_does_not_have_yet_is_applied_by_a_node_that_knows_it() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.restrict_in_postgres(&key, &allow_origin(ALLOWED)).await;
    fixture.node.api.admission().report_change(id_of(&key));
    fixture.node.api.admission().look_up_changed_key(id_of(&key)).await;
    assert_eq!(fixture.node.request_from(&key, None).await, refused("origin_not_allowed"));
    assert_eq!(fixture.node.request_from(&key, Some(ALLOWED)).await, admitted());
}

#[tokio::test]
async fn networks_expiry_and_daily_limit_are_applied() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    let network = |text| vec![AllowedNetwork::parse(text).expect("valid network")];
    fixture.restrict(&key, &Restrictions { networks: network("198.51.100.0/24"), ..Restrictions::default() }).await;
    assert_eq!(fixture.node.request_from(&key, None).await, admitted());
    fixture.restrict(&key, &Restrictions { networks: network("192.0.2.0/24"), ..Restrictions::default() }).await;
    assert_eq!(fixture.node.request_from(&key, None).await, refused("network_not_allowed"));

    let now_s = fixture.ledger.owner_of(id_of(&key)).now().as_secs();
    let expires = |expires_at_s| Restrictions { expires_at_s: Some(expires_at_s), ..Restrictions::default() };
    fixture.restrict(&key, &expires(now_s - 1)).await;
    assert_eq!(fixture.node.request_from(&key, None).await, refused("inactive_api_key"));
    fixture.restrict(&key, &expires(now_s + 3600)).await;
    assert_eq!(fixture.node.request_from(&key, None).await, admitted());

    let used = fixture.charged(&key).await;
    fixture.restrict(&key, &Restrictions { daily_limit: Some(used + 1), ..Restrictions::default() }).await;
    let (status, headers, _) = fixture.node.send(&key, CALLER, HeaderMap::new()).await;
    assert_eq!((status, &headers["x-ratelimit-limit"]), (200, &HeaderValue::from(used + 1)));
    assert_eq!(fixture.node.send(&key, CALLER, HeaderMap::new()).await.0, 429);
}

#[tokio::test]
async fn caller_that_exceeds_its_limit_does_not_pause_the_key() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.restrict(&key, &Restrictions { caller_limit: Some(30), ..Restrictions::default() }).await;
    let (mut admitted, mut last) = (0, None);
    for _ in 0..400 {
        let (status, headers, body) = fixture.node.send(&key, CALLER, HeaderMap::new()).await;
        admitted += u64::from(status == 200);
        last = Some((status, headers, body));
    }
    assert_eq!((admitted, fixture.charged(&key).await), (30, 31));
    let (status, headers, body) = last.expect("a response");
    assert_eq!((status, &body["error"], body.get("enterprise")), (429, &"rate_limit_exceeded".into(), None));
    assert!(body["docs"].as_str().is_some_and(|docs| docs.ends_with("#caller-limit")), "{body}");
    assert_eq!((&headers["x-ratelimit-limit"], &headers["x-ratelimit-remaining"]), (&30.into(), &0.into()));
    assert!(headers.contains_key("x-ratelimit-reset") && headers.contains_key("retry-after"));
    assert_eq!(fixture.node.request(&key).await, 200, "another caller");
}

#[tokio::test]
async fn restrictions_are_applied_without_redis_and_without_both() {
    let fixture = ApiFixture::open().await;
    let admission = fixture.node.api.admission();
    admission.set_key_events_subscribed(true);
    let (key, known) = (fixture.create_known_key().await, fixture.create_known_key().await);
    fixture.restrict(&known, &allow_origin(ALLOWED)).await;
    assert_eq!(fixture.node.request_from(&known, Some(ALLOWED)).await, admitted());
    fixture.cut_off_redis(&key).await;
    // PostgreSQL has the restrictions, also new ones.
    fixture.restrict_in_postgres(&key, &allow_origin(ALLOWED)).await;
    admission.report_change(id_of(&key));
    admission.look_up_changed_key(id_of(&key)).await;
    for restricted in [&key, &known] {
        assert_eq!(fixture.node.request_from(restricted, Some(ALLOWED)).await, admitted());
        assert_eq!(fixture.node.request_from(restricted, Some(OTHER)).await, refused("origin_not_allowed"));
    }
    fixture.postgres_link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    for restricted in [&key, &known] {
        assert_eq!(fixture.node.request_from(restricted, Some(OTHER)).await, refused("origin_not_allowed"));
        assert_eq!(fixture.node.request_from(restricted, Some(ALLOWED)).await, admitted());
    }
}

#[tokio::test]
async fn restrictions_that_cannot_be_read_admit_nobody() {
    let fixture = ApiFixture::open().await;
    let (key, other) = (fixture.create_known_key().await, fixture.create_known_key().await);
    fixture.restrict(&key, &allow_origin(ALLOWED)).await;
    fixture.postgres_link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    assert_eq!(fixture.node.request_from(&key, Some(ALLOWED)).await.0, 500);
    assert_eq!(fixture.node.request(&other).await, 200);
    // Without Redis either, the node knows that its record is outdated.
    fixture.redis_link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    fixture.node.request_until_degraded(&other).await;
    assert_eq!(fixture.node.request_from(&key, Some(ALLOWED)).await.0, 500);
    assert_eq!(fixture.node.request_from(&key, None).await.0, 500);
}

#[tokio::test]
async fn concurrent_requests_read_new_restrictions_once() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    fixture.restrict(&key, &allow_origin(ALLOWED)).await;
    // Fifty reads, ten at a time, would take longer.
    let delay = Duration::from_millis(200);
    fixture.postgres_link.set_faults(FaultConfig { delay, ..FaultConfig::none() });
    let start = Instant::now();
    let requests = (0..50).map(|_| fixture.node.request_from(&key, Some(ALLOWED)));
    assert!(join_all(requests).await.iter().all(|response| *response == admitted()));
    assert!(start.elapsed() < 5 * delay, "{:?}", start.elapsed());
}
