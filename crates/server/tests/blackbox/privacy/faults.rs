//! Redis and PostgreSQL slow, hanging, cut off, faulty or dead; handlers that panic; requests that time out. Errors log
//! the most.

use std::num::NonZeroU32;
use std::time::Duration;

use ipseity_domain::{PlaintextKey, Scope};
use ipseity_testkit::{FaultConfig, Node};

use super::fixture::{PROXY_PROTOCOL_NODE, PrivacyFixture, extra_node_env, log_all_redis_commands};
use super::routes::{LOOKUP_PATH, as_str_pairs};
use crate::fixture::fresh_key;
use crate::portal::routes::{AccountFixture, ROUTE_CASES};

/// Faults of a link while requests are sent.
fn fault_configs() -> [FaultConfig; 5] {
    let slow = Duration::from_millis(20);
    [
        FaultConfig { delay: slow, jitter: slow, ..FaultConfig::none() },
        FaultConfig { bytes_per_second: NonZeroU32::new(20_000), ..FaultConfig::none() },
        FaultConfig { reply_drop_rate: 0.5, seed: 1, ..FaultConfig::none() },
        FaultConfig { half_open: true, ..FaultConfig::none() },
        FaultConfig { cut: true, ..FaultConfig::none() },
    ]
}

pub(crate) async fn run_faults(fixture: &mut PrivacyFixture) {
    panic_every_route(fixture).await;
    exceed_request_timeout(fixture).await;
    let (owner, _) = AccountFixture::create(&fixture.portal).await;
    for (index, faults) in fault_configs().into_iter().enumerate() {
        request_over_faulty_links(fixture, index % PROXY_PROTOCOL_NODE, faults, &owner).await;
    }
    fixture.wait_until_ready().await;
    fixture.save_redis_dump().await;
    kill_stores(fixture).await;
}

/// Makes every route panic with all the data of its request.
async fn panic_every_route(fixture: &PrivacyFixture) {
    for node in fixture.deployment().nodes.iter().take(PROXY_PROTOCOL_NODE) {
        let mut caller = node.client();
        for row in ROUTE_CASES {
            let mut lines = fixture.canaries.client_headers();
            lines.extend(
                [("x-panic", "now"), ("authorization", &*fixture.keys[0])].map(|(n, v)| (n.to_owned(), v.to_owned())),
            );
            let reply = caller.get(&format!("{}?key={}", row.path, fixture.keys[0]), &as_str_pairs(&lines)).await;
            assert_eq!(reply.expect("response arrives").status, 500, "no panic at {}", row.path);
        }
    }
    fixture.record_status(500);
}

/// Delays a request until it times out.
async fn exceed_request_timeout(fixture: &PrivacyFixture) {
    let settings = extra_node_env(&[
        ("IPSEITY_FAILPOINTS", "fill-before-write=3000"),
        ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "300"),
    ]);
    let mut node = fixture.deployment().start_node(&settings).await.expect("node starts");
    let key = fixture.canaries.register_key(&fresh_key(fixture.deployment(), Scope::Full).await.key);
    let reply =
        node.client().get(&format!("{LOOKUP_PATH}?key={key}"), &as_str_pairs(&fixture.canaries.client_headers())).await;
    assert_eq!(reply.expect("response arrives").status, 500);
    assert!(node.log().expect("read the log").contains("request exceeded"), "the request did not time out");
    node.kill9();
    fixture.retain_node(node);
}

/// Sends lookups and page requests to a node over faulty links.
async fn request_over_faulty_links(
    fixture: &PrivacyFixture,
    node_index: usize,
    faults: FaultConfig,
    owner: &AccountFixture,
) {
    let (node, proxies) = (&fixture.deployment().nodes[node_index], fixture.deployment().fault_proxies(node_index));
    for proxy in [&proxies.redis, &proxies.postgres] {
        proxy.set_faults(faults);
        lookup_with_all_keys(fixture, node).await;
        proxy.clear_faults();
    }
    proxies.postgres.set_faults(faults);
    let mut browser = fixture.portal.browser().on_node(node);
    browser.set_extra_headers(fixture.canaries.client_headers());
    for path in ["/signin", "/keys", "/usage", "/account"] {
        fixture.record_status(browser.get(path).await.status);
    }
    let key = fixture.keys[0].as_str();
    let form = [("email", owner.email.as_str()), ("password", key), ("csrf", key)];
    fixture.record_status(browser.post_with("/signin", &[], &form).await.status);
    proxies.postgres.clear_faults();
    proxies.postgres.reset_connections();
}

/// Kills Redis, PostgreSQL and then both.
async fn kill_stores(fixture: &mut PrivacyFixture) {
    for (redis, postgres) in [(true, false), (false, true), (true, true)] {
        if redis {
            fixture.portal.deployment.redis.kill9();
        }
        if postgres {
            fixture.portal.deployment.postgres.kill9();
        }
        for node in fixture.deployment().nodes.iter().take(PROXY_PROTOCOL_NODE) {
            let failed = lookup_with_all_keys(fixture, node).await;
            assert!(failed > 0 || !(redis && postgres), "Redis and PostgreSQL were down, but no request failed");
        }
        if postgres {
            fixture.portal.deployment.postgres.restart().await.expect("PostgreSQL restarts");
        }
        if redis {
            fixture.portal.deployment.redis.restart().await.expect("Redis restarts");
            log_all_redis_commands(fixture.deployment()).await;
        }
        fixture.wait_until_ready().await;
    }
}

/// Looks up with every key and with an unknown one; returns the number of failures.
async fn lookup_with_all_keys(fixture: &PrivacyFixture, node: &Node) -> usize {
    let unknown = fixture.canaries.register_key(PlaintextKey::generate(|| fastrand::u8(..)).expose());
    let (mut caller, mut failed) = (node.client(), 0);
    for key in fixture.keys.iter().chain([&unknown]) {
        let lines = fixture.canaries.client_headers();
        let reply =
            caller.get(&format!("{LOOKUP_PATH}?key={key}"), &as_str_pairs(&lines)).await.expect("response arrives");
        fixture.record_status(reply.status);
        failed += usize::from(reply.status >= 500);
    }
    failed
}
