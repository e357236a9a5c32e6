//! Faults stay in their shard, and a new connection waits for its gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipseity_domain::PlaintextKey;
use ipseity_ledger::LedgerOptions;
use ipseity_testkit::{RedisCluster, eventually};

use crate::fixture::{ApiFixture, CHARGE_TIMEOUT, FAILURES_MAX, PATIENCE, TestApi, create_key, id_of, open_postgres};

#[tokio::test]
async fn dead_shard_degrades_only_its_keys() {
    let ((_postgres, postgres_link, store, account), mut cluster) =
        tokio::join!(open_postgres(), async { RedisCluster::start().await.expect("cluster starts") });
    let mut options = LedgerOptions::new(cluster.url(), CHARGE_TIMEOUT);
    options.breaker_failures_max = FAILURES_MAX;
    let node = TestApi::start(&options, &postgres_link);
    let dead_address = cluster.servers[0].address().to_string();
    let is_on_dead_shard = |key: &PlaintextKey| node.ledger.owner_of(id_of(key)).address() == dead_address;
    let (mut dead_key, mut healthy_key) = (None, None);
    while dead_key.is_none() || healthy_key.is_none() {
        let key = create_key(&store, &account).await;
        eventually("the key is admitted", PATIENCE, async || node.request(&key).await == 200).await.expect("admitted");
        if is_on_dead_shard(&key) { dead_key = Some(key) } else { healthy_key = Some(key) }
    }
    let (dead_key, healthy_key) = (dead_key.expect("found"), healthy_key.expect("found"));

    // The replica too, so that nothing takes over.
    for index in [0, 3] {
        cluster.servers[index].kill9();
    }
    node.request_until_degraded(&dead_key).await;
    let unavailable: Vec<String> =
        node.api.admission().unavailable_owners().iter().map(|owner| owner.address()).collect();
    assert_eq!(unavailable, [dead_address]);
    assert_eq!(node.request_degraded(&dead_key).await, 200);
    let decisions = node.metric("degraded_decisions_total");
    for _ in 0..20 {
        assert_eq!(node.request(&healthy_key).await, 200);
    }
    assert_eq!(node.metric("degraded_decisions_total"), decisions, "Redis decides on keys of other shards");
    let usage = node.ledger.usage_of(&[id_of(&healthy_key)]).await.expect("the shard answers");
    assert!(usage[0].is_some_and(|usage| usage.count >= 21), "{usage:?}");
}

#[tokio::test]
async fn new_connection_is_not_used_before_its_gate_opens() {
    let is_open = Arc::new(AtomicBool::new(true));
    let gate_state = Arc::clone(&is_open);
    let fixture = ApiFixture::with_options(|options| {
        options.connect_gate = Some(Arc::new(move |_address| {
            let is_open = gate_state.load(Ordering::Acquire);
            Box::pin(async move { is_open })
        }));
    })
    .await;
    let key = fixture.create_known_key().await;
    is_open.store(false, Ordering::Release);
    fixture.redis_link.reset_connections();
    // The reset reaches the node a moment later.
    eventually("the connection is lost", PATIENCE, async || {
        let before = fixture.node.metric("degraded_decisions_total");
        assert_eq!(fixture.node.request(&key).await, 200);
        fixture.node.metric("degraded_decisions_total") > before
    })
    .await
    .expect("the connection is lost");
    let charged = fixture.charged(&key).await;
    assert_eq!(fixture.node.request_degraded(&key).await, 200);
    assert_eq!(fixture.charged(&key).await, charged);
    is_open.store(true, Ordering::Release);
    fixture.node.recover().await;
    fixture.node.reconcile_all().await;
    assert!(fixture.charged(&key).await > charged);
}
