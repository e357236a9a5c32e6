//! The status page: what works, also while PostgreSQL and Redis do not answer.

use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::{TestClient, eventually};
use serde_json::Value;

use super::browser::Browser;
use super::fixture::PortalFixture;
use crate::fixture::lookup_status;

const PATIENCE: Duration = Duration::from_secs(30);

async fn status(fixture: &PortalFixture) -> Value {
    let reply = fixture.node().client().get("/status.json", &[]).await.expect("response arrives");
    assert_eq!((reply.status, reply.header("cache-control")), (200, Some("public, max-age=5")), "{}", reply.text());
    assert!(!reply.headers.contains_key("set-cookie"));
    reply.json().expect("valid JSON")
}

/// Waits for the status of the whole, then of lookups, dashboard, counting and geo data.
async fn expect_status(fixture: &PortalFixture, expected: [&str; 5]) {
    let mut last = Value::Null;
    let found = eventually("the status is as expected", PATIENCE, async || {
        last = status(fixture).await;
        let components = last["components"].as_array().expect("list").iter().map(|item| &item["status"]);
        [&last["status"]].into_iter().chain(components).eq(expected)
    });
    let found = found.await;
    assert!(found.is_ok(), "{expected:?}; last: {last}");
}

async fn page_in_time(browser: &mut Browser) -> String {
    let started = Instant::now();
    let reply = browser.get("/status").await;
    assert!(started.elapsed() < Duration::from_secs(2), "the page waited for a store: {:?}", started.elapsed());
    assert_eq!(reply.status, 200);
    reply.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn status_page_tells_what_works_while_stores_do_not_answer() {
    let mut fixture = PortalFixture::with_nodes(2, &[]).await;
    // Redis knows a key, and the node that the test asks does not. So the node needs one of the stores.
    fixture.deployment.create_account("status@example.com").await.expect("account is created");
    let key = fixture.deployment.issue_key("status@example.com", Scope::Ip).await.expect("key is issued").key;
    assert_eq!(lookup_status(&fixture.deployment.nodes[1], &key).await, 200);
    let mut member = fixture.create_member().await.browser;
    // The geo databases of the tests are old.
    let (up, old) = ("operational", "degraded");
    expect_status(&fixture, [old, up, up, up, old]).await;
    let page = page_in_time(&mut member).await;
    assert!(
        page.contains("Requests are answered.")
            && page.contains("Recent changes are missing.")
            && page.contains("action=\"/signout\""),
        "{page}"
    );

    fixture.deployment.postgres.freeze();
    expect_status(&fixture, ["degraded", "degraded", "down", up, old]).await;
    let page = page_in_time(&mut member).await;
    assert!(page.contains("You can’t sign in") && page.contains("href=\"/signin\""), "{page}");
    fixture.deployment.postgres.thaw();
    fixture.deployment.redis.freeze();
    expect_status(&fixture, ["degraded", "degraded", up, "down", old]).await;
    let page = page_in_time(&mut member).await;
    assert!(page.contains("Lookups continue with local limits") && page.contains("/docs/promises#bounds"), "{page}");

    fixture.deployment.postgres.freeze();
    expect_status(&fixture, ["down", "down", "down", "down", old]).await;
    let page = page_in_time(&mut member).await;
    for internal in ["PostgreSQL", "Redis", "127.0.0.1", "did not answer", env!("CARGO_PKG_VERSION")] {
        assert!(!page.contains(internal) && !status(&fixture).await.to_string().contains(internal), "{internal}");
    }
    fixture.deployment.postgres.thaw();
    fixture.deployment.redis.thaw();
    expect_status(&fixture, [old, up, up, up, old]).await;
    let ready = TestClient::new(fixture.node().ops()).get("/ready", &[]).await.expect("response arrives");
    assert_eq!(ready.status, 200);
}
