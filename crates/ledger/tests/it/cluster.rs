//! A cluster: exact as one server is, and healed without a restart when a primary is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{Key, Standing};
use ledger::{ChargeName, Ledger, LedgerOptions, Verdict};
use testkit::{Cluster, eventually};
use tokio::task::JoinSet;

use crate::pause::{exact, race};
use crate::stage::{Stage, fresh, node_at, used};

/// From the death of a primary to verdicts on all that it owned; the servers themselves take a second to miss it and half of one to vote.
const HEAL_MAX: Duration = Duration::from_secs(5);
/// A bound on a verdict that calls to a silent server run into.
const HASTY: Duration = Duration::from_millis(200);

/// A key in each primary's share, in their order.
async fn key_of_each(stage: &Stage<Cluster>) -> [(Key, Standing); 3] {
    let mut keys = [None, None, None];
    while keys.iter().any(Option::is_none) {
        let (key, standing) = stage.known(10_000).await;
        let (place, _) = stage.redis.find(&format!("*:k:{}", key.id)).await.expect("a record");
        keys[place] = Some((key, standing));
    }
    keys.map(|key| key.expect("a key of each"))
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_are_exact_on_every_primary_and_all_are_swept_and_read() {
    let stage = Stage::cluster().await;
    stage.ledger.check().await.expect("an answer of each primary");
    let keys = key_of_each(&stage).await;
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(node_at(stage.redis.url()))).collect();
    for (key, _) in &keys {
        assert_eq!(race(&nodes, *key).await, exact());
    }

    let mut swept = nodes[0].sweep(Duration::from_secs(2)).await.expect("a sweep");
    swept.sort_by_key(|pause| keys.iter().position(|(key, _)| key.id == pause.key));
    assert_eq!(swept.iter().map(|pause| pause.key).collect::<Vec<_>>(), keys.each_ref().map(|(key, _)| key.id));
    for pause in swept {
        assert_eq!(nodes[1].pending(pause.key).await.expect("a look"), std::slice::from_ref(&pause));
        nodes[1].confirm(&pause).await.expect("a confirmation");
        assert_eq!(nodes[1].pending(pause.key).await.expect("a look"), []);
    }

    let (unused, _) = fresh(10);
    let ids = [keys[2].0.id, unused.id, keys[0].0.id, keys[1].0.id];
    let found = nodes[2].used(&ids).await.expect("counts");
    assert_eq!(
        found.iter().map(|used| used.map(|used| used.count)).collect::<Vec<_>>(),
        [Some(300), None, Some(300), Some(300)]
    );
    stage.ledger.forget(keys[1].0.id).await.expect("a deletion");
    stage.unknown(&keys[1].0).await;
}

/// Charges a key until a verdict is had, filling if need be; returns how long that took.
async fn healed(ledger: &Ledger, (key, standing): &(Key, Standing)) -> Duration {
    let start = Instant::now();
    eventually("a verdict", Duration::from_secs(30), async || match ledger.charge(key, ChargeName::next()).await {
        Ok(Verdict::Unknown(fence)) => ledger.fill(standing, &fence).await.is_ok_and(|_| false),
        Ok(verdict) => used(&verdict) > 0,
        Err(_) => false,
    })
    .await
    .expect("a heal");
    start.elapsed()
}

/// Takes the first primary away, and returns how long its key had no verdict; the other primaries' keys never lack one.
async fn without_first(stage: &mut Stage<Cluster>, take: impl FnOnce(&mut Cluster)) -> Duration {
    let ledger = Arc::new(Ledger::new(&LedgerOptions { url: stage.redis.url(), timeout: HASTY }).expect("a ledger"));
    let [lost, second, third] = key_of_each(stage).await;
    for key in [&lost, &second, &third] {
        healed(&ledger, key).await;
    }
    take(&mut stage.redis);
    let mut others = JoinSet::new();
    for (key, _) in [second, third] {
        let ledger = Arc::clone(&ledger);
        others.spawn(async move {
            for _ in 0..100 {
                let verdict = ledger.charge(&key, ChargeName::next()).await;
                assert!(matches!(verdict, Ok(Verdict::Admitted { .. })), "another primary's key: {verdict:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let took = healed(&ledger, &lost).await;
    others.join_all().await;
    ledger.check().await.expect("an answer of each primary");
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_replaced_while_the_others_serve_on() {
    let mut stage = Stage::cluster().await;
    let took = without_first(&mut stage, |cluster| cluster.servers[0].kill9()).await;
    assert!(took < HEAL_MAX, "{took:?}");
    // It comes back with nothing, as the replica of the one that was its own.
    stage.redis.servers[0].restart().await.expect("a server");
    stage.redis.whole().await.expect("a whole cluster");
    is_served(&stage).await;
}

/// New keys, wherever they fall.
async fn is_served(stage: &Stage<Cluster>) {
    for _ in 0..10 {
        let (key, _) = stage.known(10).await;
        assert_eq!(stage.admitted(&key).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_primary_is_replaced_although_nobody_says_so() {
    let mut stage = Stage::cluster().await;
    let took = without_first(&mut stage, |cluster| cluster.servers[0].freeze()).await;
    assert!(took < HEAL_MAX, "{took:?}");
    stage.redis.servers[0].thaw();
    // For a moment it believes to be the owner still.
    stage.redis.whole().await.expect("a whole cluster");
    is_served(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_of_a_cluster_leads_to_all_of_it_with_its_own_password() {
    let stage = Stage::cluster().await;
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(stage.known(10).await.0);
    }
    let replica = stage.redis.servers[4].url();
    for server in &stage.redis.servers {
        server.call(&["CONFIG", "SET", "masterauth", "secret", "requirepass", "secret"]).await.expect("a password");
    }
    let stranger = node_at(replica.clone());
    assert!(stranger.charge(&keys[0], ChargeName::next()).await.is_err(), "without the password");
    let node = node_at(replica.replace("redis://", "redis://:secret@"));
    for key in keys {
        assert_eq!(used(&node.charge(&key, ChargeName::next()).await.expect("a verdict")), 1);
    }
}
