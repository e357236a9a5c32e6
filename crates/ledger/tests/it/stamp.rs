//! Stamps: what a store that is not the same any more remembers is not believed.

use domain::{Marks, Standing, Used};
use ledger::{ChargeName, DemoVerdict, Verdict};
use testkit::{Redis, RedisOptions};

use crate::stage::{Stage, fresh, node, used};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_from_an_old_snapshot_is_not_believed() {
    let mut stage = Stage::open().await;
    let (key, standing) = stage.known(10).await;
    assert_eq!(stage.admitted(&key).await, 1);
    stage.redis.save_snapshot().await.expect("a snapshot");
    assert_eq!(stage.admitted(&key).await, 2);
    let inactive = Standing { marks: Marks { deactivated: true, paused: false }, generation: 2, ..standing };
    stage.ledger.publish(&inactive).await.expect("a publish");

    stage.redis.kill9();
    stage.redis.restart().await.expect("a server that comes back");
    stage.fill(&key, &inactive).await;
    assert!(matches!(stage.charge(&key).await, Verdict::Inactive(_)));

    stage.redis.restart().await.expect("a server that comes back");
    let today = Used { day: today(&stage).await, count: 2 };
    stage.fill(&key, &Standing { marks: Marks::default(), generation: 3, used: Some(today), ..inactive }).await;
    assert_eq!(stage.admitted(&key).await, 3, "the greater of both counts");
}

async fn today(stage: &Stage) -> domain::Day {
    let (key, _) = stage.known(1).await;
    let Verdict::Admitted { charged, .. } = stage.charge(&key).await else { panic!("not admitted") };
    charged.day
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_from_an_old_snapshot_lets_no_fill_through() {
    let mut stage = Stage::open().await;
    let (key, active) = fresh(10);
    let fence = stage.unknown(&key).await;
    stage.redis.save_snapshot().await.expect("a snapshot");
    let inactive = Standing { marks: Marks { deactivated: true, paused: false }, generation: 2, ..active.clone() };
    stage.ledger.publish(&inactive).await.expect("a publish");
    stage.redis.restore_snapshot().await.expect("a server that comes back");
    assert!(!stage.ledger.fill(&active, &fence).await.expect("an answer"));
    stage.unknown(&key).await;
}

/// Attaches a first replica, which gives the store another identity under its open connections.
async fn attach_replica(primary: &Redis) -> Redis {
    let replica = Redis::start(RedisOptions::default()).await.expect("a server");
    replica.follow(primary).await.expect("a replica in step");
    replica
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_got_another_identity_is_identified_again() {
    let stage = Stage::open().await;
    let (key, standing) = stage.known(10).await;
    assert_eq!(stage.admitted(&key).await, 1);
    stage.ledger.charge_demo_knowing(None).await.expect("a verdict");
    let _replica = attach_replica(&stage.redis).await;
    assert_eq!(stage.admitted(&key).await, 2, "who stays connected notices nothing");

    let newcomer = node(&stage.redis);
    let Verdict::Unknown(fence) = newcomer.charge(&key, ChargeName::next()).await.expect("a verdict") else {
        panic!("known")
    };
    assert!(newcomer.fill(&standing, &fence).await.expect("a fill"));
    assert_eq!(newcomer.charge(&key, ChargeName::next()).await.map(|verdict| used(&verdict)).expect("a verdict"), 3);
    assert_eq!(stage.admitted(&key).await, 4, "until the record bears the new stamp");
    assert_eq!(newcomer.charge(&key, ChargeName::next()).await.map(|verdict| used(&verdict)).expect("a verdict"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_and_a_demo_charge_heal_a_changed_identity_too() {
    let stage = Stage::open().await;
    let (key, standing) = stage.known(10).await;
    let old = [node(&stage.redis), node(&stage.redis)];
    for node in &old {
        node.check().await.expect("a connection");
    }
    stage.ledger.charge_demo_knowing(None).await.expect("a verdict");
    let _replica = attach_replica(&stage.redis).await;

    let newcomer = node(&stage.redis);
    let Verdict::Unknown(fence) = newcomer.charge(&key, ChargeName::next()).await.expect("a verdict") else {
        panic!("known")
    };
    assert!(newcomer.fill(&standing, &fence).await.expect("a fill"));
    let inactive = Standing { marks: Marks { deactivated: true, paused: false }, generation: 2, ..standing };
    old[0].publish(&inactive).await.expect("a publish");
    assert!(matches!(newcomer.charge(&key, ChargeName::next()).await.expect("a verdict"), Verdict::Inactive(_)));

    assert_eq!(newcomer.charge_demo().await.expect("a verdict"), DemoVerdict::Unknown);
    newcomer.charge_demo_knowing(None).await.expect("a verdict");
    for (node, count) in [(&old[1], 3), (&newcomer, 4), (&old[1], 5)] {
        let verdict = node.charge_demo().await.expect("a verdict");
        assert!(matches!(verdict, DemoVerdict::Admitted { charged, .. } if charged.used == count), "{verdict:?}");
    }
}
