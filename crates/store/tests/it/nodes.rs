//! Heartbeats of nodes.

use ipseity_store::{NodeHeartbeat, NodeRole};
use uuid::Uuid;

use crate::fixture::StoreFixture;

const fn heartbeat(id: u128, connected_sites: &[String]) -> NodeHeartbeat<'_> {
    NodeHeartbeat {
        id: Uuid::from_u128(id),
        name: "node1",
        site: "FRA",
        version: "0.2.0",
        started_s: 1_800_000_000,
        is_draining: false,
        is_degraded: false,
        connected_sites,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_connected_sites_are_listed_until_they_are_silent_for_a_day() {
    let fixture = StoreFixture::open().await;
    // With the rights of a node.
    let store = fixture.node_store().await;
    let sites = ["paris".to_owned(), "oslo".to_owned()];
    let (one, two) = (heartbeat(1, &sites), heartbeat(2, &sites[..1]));
    for _ in 0..5 {
        let (first, second) = tokio::join!(store.nodes().heartbeat(&one), store.nodes().heartbeat(&two));
        first.and(second).expect("heartbeats are written");
    }
    let listed = store.nodes().list().await.expect("nodes are listed");
    let names: Vec<_> = listed.iter().map(|node| (node.role, node.name.as_str(), node.site.as_str())).collect();
    let [home, remote] = [NodeRole::Home, NodeRole::Remote];
    assert_eq!(
        names,
        [(home, "node1", "FRA"), (home, "node1", "FRA"), (remote, "oslo", "oslo"), (remote, "paris", "paris")]
    );
    assert_eq!((listed[0].version.as_deref(), listed[0].started_s), (Some("0.2.0"), Some(1_800_000_000)));
    assert!(listed[0].schema_version >= Some(20) && listed[2].schema_version.is_none());

    fixture.sql("update nodes set last_seen_at = now() - interval '25 hours' where name <> 'oslo'").await;
    let draining = NodeHeartbeat { is_draining: true, is_degraded: true, connected_sites: &[], ..one };
    store.nodes().heartbeat(&draining).await.expect("heartbeat is written");
    let listed = store.nodes().list().await.expect("nodes are listed");
    assert_eq!(listed.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["node1", "oslo"]);
    assert!(listed[0].is_draining && listed[0].is_degraded && listed[0].seen_ago_s < 60);
    store.nodes().remove(one.id).await.expect("node is removed");
    assert_eq!(store.nodes().list().await.expect("nodes are listed").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_was_frozen_for_a_day_is_listed_again() {
    let fixture = StoreFixture::open().await;
    let sites = ["paris".to_owned()];
    for _ in 0..2 {
        fixture.store.nodes().heartbeat(&heartbeat(1, &sites)).await.expect("heartbeat is written");
        assert_eq!(fixture.store.nodes().list().await.expect("nodes are listed").len(), 2);
        fixture.sql("update nodes set last_seen_at = now() - interval '25 hours'").await;
    }
}
