//! The console answers at one host, and its pages can be neither framed nor cached.

use ipseity_store::OperatorRole;
use ipseity_testkit::{TestClient, TestResponse};

use super::fixture::shared_fixture;
use super::routes::ROUTE_CASES;
use crate::portal::browser::CONSOLE_COOKIE;

#[track_caller]
fn assert_protected(reply: &TestResponse, what: &str) {
    let policy = reply.header("content-security-policy").unwrap_or_default();
    for part in ["default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{what}: {part} is missing in {policy}");
    }
    assert!(!policy.contains("unsafe-"), "{what}: {policy}");
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        let values: Vec<_> = reply.headers.get_all(name).iter().collect();
        assert_eq!(values, [value], "{what}: {name}");
    }
    assert!(reply.header("permissions-policy").is_some() && reply.header("access-control-allow-origin").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_is_protected() {
    let fixture = shared_fixture().await;
    let (mut admin, target) = tokio::join!(fixture.sign_in(OperatorRole::Admin), fixture.create_target());
    for case in ROUTE_CASES {
        let path = case.path_for(&target, Some(&admin));
        assert_protected(&fixture.browser().get(&path).await, &format!("{path} of a visitor"));
        if case.is_form() {
            assert_protected(&admin.browser.post_with(&path, &[], &[]).await, &format!("{path} without a token"));
        } else {
            assert_protected(&admin.browser.get(&path).await, &path);
        }
    }
    assert_protected(&admin.browser.get("/nothing").await, "an unknown path");
    let page = admin.browser.get("/").await.text();
    let asset = page.split('"').find(|text| text.starts_with("/assets/")).expect("page has files").to_owned();
    let reply = fixture.browser().get(&asset).await;
    let cache = reply.header("cache-control").unwrap_or_default();
    assert!(reply.status == 200 && cache.contains("immutable"), "{asset}: {cache}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_hosts_are_not_answered() {
    let fixture = shared_fixture().await;
    let (admin, target) = tokio::join!(fixture.sign_in(OperatorRole::Admin), fixture.create_target());
    let address = fixture.node().console();
    let cookie = format!("{CONSOLE_COOKIE}={}", admin.browser.cookie(CONSOLE_COOKIE).expect("browser has the cookie"));
    let headers = [("cookie", cookie.as_str()), ("x-forwarded-host", "localhost")];
    let port = address.port();
    let hosts = [
        // A name of an attacker that leads to this address.
        format!("rebind.evil.example:{port}"),
        format!("127.0.0.1:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("localhost:{port}.evil.example"),
        "localhost".to_owned(),
        "localhost:1".to_owned(),
    ];
    for host in &hosts {
        let mut client = TestClient::new(address).with_host(host);
        for path in ["/", "/signin", "/audit.csv", &format!("/accounts/{}", target.account), "/nothing"] {
            let reply = client.get(path, &headers).await.expect("response arrives");
            assert_eq!(reply.status, 421, "{host} {path}: {}", reply.text());
            assert!(!reply.text().contains(&target.email) && reply.header("set-cookie").is_none(), "{}", reply.text());
            assert_protected(&reply, host);
        }
        let reply = client.post_form(&format!("/keys/{}/deactivate", target.key), &headers, &[]).await;
        assert_eq!(reply.expect("response arrives").status, 421, "{host}");
    }
    let second = format!("localhost:{port}");
    let mut client = TestClient::new(address).with_host(&hosts[0]);
    let reply = client.get("/", &[("host", &second), ("cookie", &cookie)]).await.expect("response arrives");
    assert!(matches!(reply.status, 400 | 421), "two hosts: {}", reply.status);
    let mut client = TestClient::new(address).with_host(&format!("LocalHost:{port}"));
    let reply = client.get("/", &[("cookie", &cookie), ("x-forwarded-host", "evil.example")]).await;
    assert_eq!(reply.expect("response arrives").status, 200);
    // The other listeners have no console.
    for listener in [fixture.node().http(), fixture.node().ops()] {
        for path in ["/signin", "/operators", "/audit"] {
            let reply = TestClient::new(listener).with_host(&second).get(path, &[("cookie", &cookie)]).await;
            assert!(!reply.expect("response arrives").text().contains("Ipseity admin"), "{path} at {listener}");
        }
    }
    let reply = TestClient::new(address).with_host(&second).get("/api/v1/ip", &[]).await.expect("response arrives");
    assert_eq!(reply.status, 404, "the console has no API");
}
