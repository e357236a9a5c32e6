//! Filling and publishing: what a slow reader of the durable store can never do.

use domain::{Marks, Standing};
use ledger::Verdict;
use redis::cmd;

use crate::stage::{Stage, fresh, used};

/// The next change of a standing.
fn changed(standing: &Standing, deactivated: bool) -> Standing {
    let marks = Marks { deactivated, ..standing.marks };
    Standing { marks, generation: standing.generation + 1, ..standing.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_charge_is_unknown_and_after_a_fill_admitted() {
    let stage = Stage::open().await;
    let (key, standing) = fresh(10);
    let fence = stage.unknown(&key).await;
    assert!(stage.ledger.fill(&standing, &fence).await.expect("a fill"));
    let verdict = stage.charge(&key).await;
    assert_eq!(used(&verdict), 1);
    let Verdict::Admitted { scope, charged, yesterday, .. } = verdict else { panic!("not admitted") };
    assert_eq!((scope, charged.limit, charged.remaining(), yesterday), (standing.scope, 10, 9, None));
    assert_eq!(charged.day, charged.now.day());
    assert!((1..=86_400).contains(&charged.retry_after_s()));

    assert!(stage.ledger.fill(&standing, &fence).await.expect("a fill"), "a second fill is no failure");
    assert_eq!(stage.admitted(&key).await, 2, "and takes nothing back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fill_that_was_overtaken_never_brings_a_key_back() {
    let stage = Stage::open().await;
    let (key, active) = fresh(10);

    let fence = stage.unknown(&key).await;
    stage.ledger.publish(&changed(&active, true)).await.expect("a publish");
    assert!(!stage.ledger.fill(&active, &fence).await.expect("an answer"), "a deactivated key");
    stage.unknown(&key).await;

    let fence = stage.unknown(&key).await;
    stage.ledger.forget(key.id).await.expect("a deletion");
    assert!(!stage.ledger.fill(&active, &fence).await.expect("an answer"), "a deleted key");
    stage.unknown(&key).await;

    let fence = stage.unknown(&key).await;
    stage.redis.flushall().await.expect("a loss");
    assert!(!stage.ledger.fill(&active, &fence).await.expect("an answer"), "a fence that was lost");
    stage.unknown(&key).await;

    stage.fill(&key, &active).await;
    assert_eq!(stage.admitted(&key).await, 1);
    stage.ledger.forget(key.id).await.expect("a deletion");
    stage.ledger.publish(&changed(&active, false)).await.expect("a late publish");
    stage.unknown(&key).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_newer_publish_is_written_and_only_over_a_record() {
    let stage = Stage::open().await;
    let (key, active) = fresh(10);
    let inactive = changed(&active, true);

    stage.ledger.publish(&inactive).await.expect("a publish");
    let names: Vec<String> = cmd("KEYS").arg("*").query_async(&mut stage.connection().await).await.expect("names");
    assert!(names.iter().all(|name| name.ends_with(":fence")), "{names:?}");

    stage.fill(&key, &inactive).await;
    let older = active.clone();
    let equal = Standing { generation: inactive.generation, ..active.clone() };
    for late in [older, equal] {
        stage.ledger.publish(&late).await.expect("a publish");
        assert!(matches!(stage.charge(&key).await, Verdict::Inactive(_)));
    }
    stage.ledger.publish(&changed(&inactive, false)).await.expect("a publish");
    assert_eq!(stage.admitted(&key).await, 1);
}
