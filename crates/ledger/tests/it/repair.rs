//! Records and logs that cannot be read. They concern one key, and a fill repairs them.

use ipseity_domain::DailyUsage;
use ipseity_ledger::{AppliedRestrictions, ChargeId, Reconciled, Verdict};
use redis::cmd;

use crate::fixture::{LedgerFixture, TODAY, arrived_now, empty_batch, lost_charge, sweep};

/// Commands that break the Redis key of a record or log.
const BREAKS: [(&str, &[&str]); 4] = [
    ("k", &["SET", "KEY", "garbage"]),
    ("k", &["SETRANGE", "KEY", "68", "garbage"]),
    ("k", &["RPUSH", "KEY", "garbage"]),
    ("log", &["SET", "KEY", "garbage"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn broken_record_or_log_is_filled_again_and_other_keys_are_served() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let mut connection = fixture.connection().await;
    for (kind, command) in BREAKS {
        let (other, _) = fixture.filled_key(1_000).await;
        let (key, key_record) = fixture.filled_key(1_000).await;
        fixture.charge_admitted(&key).await;
        let redis_key = fixture.redis_key(kind, &key).await;
        if command[0] != "SETRANGE" {
            cmd("DEL").arg(&redis_key).exec_async(&mut connection).await.expect("data is deleted");
        }
        let mut break_key = cmd(command[0]);
        for argument in &command[1..] {
            break_key.arg(if *argument == "KEY" { redis_key.as_str() } else { argument });
        }
        break_key.exec_async(&mut connection).await.expect("Redis answers");

        // In one call with the charge of another key.
        let charges = (0..20).map(|_| fixture.charge(&other)).chain([fixture.charge(&key)]);
        let verdicts = futures_util::future::join_all(charges).await;
        assert!(matches!(verdicts[20], Verdict::Unknown(_)), "{command:?}: {:?}", verdicts[20]);
        assert!(verdicts[..20].iter().all(|verdict| matches!(verdict, Verdict::Admitted { .. })), "{verdicts:?}");
        let swept = sweep(&fixture.ledger, std::time::Duration::from_millis(1)).await;
        fixture.ledger.confirm_flush(&swept.map(|sweep| sweep.usage).unwrap_or_default()).await.expect("Redis answers");
        assert_eq!(
            fixture.ledger.usage_of(&[other.id]).await.expect("Redis answers")[0].map(|usage| usage.count),
            Some(20)
        );

        let usage = Some(DailyUsage { day: TODAY, count: 1 });
        fixture.fill(&key, &ipseity_domain::KeyRecord { usage, ..key_record }).await;
        let verdict = fixture.charge(&key).await;
        let Verdict::Admitted { quota, .. } = verdict else { panic!("{command:?}: {verdict:?}") };
        assert!((2..10).contains(&quota.used), "{command:?}: {quota:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn record_with_an_unreadable_scope_fails_once() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = fixture.filled_key(1_000).await;
    let redis_key = fixture.redis_key("k", &key).await;
    // The columns burst_epoch and scope.
    let garble = cmd("SETRANGE").arg(redis_key).arg(112).arg("garbage garbage").to_owned();
    garble.exec_async(&mut fixture.connection().await).await.expect("Redis answers");
    let failed = fixture
        .ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect_err("reply is unreadable");
    assert!(failed.sent.is_some() && !failed.error.is_outage(), "{failed:?}");
    fixture.fill(&key, &key_record).await;
    assert!(matches!(fixture.charge(&key).await, Verdict::Admitted { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_of_a_broken_record_waits_for_a_fill() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let mut connection = fixture.connection().await;
    for kind in ["k", "log"] {
        let (key, key_record) = fixture.filled_key(1_000).await;
        clock.advance_ms(1_000);
        let id = ChargeId::next();
        fixture.ledger.charge(&key, id, arrived_now(), AppliedRestrictions::default()).await.expect("charge succeeds");
        let redis_key = fixture.redis_key(kind, &key).await;
        cmd("DEL").arg(&redis_key).exec_async(&mut connection).await.expect("data is deleted");
        cmd("HSET").arg(&redis_key).arg("a").arg("b").exec_async(&mut connection).await.expect("Redis answers");
        let sent = lost_charge(&fixture.redis, fixture.ledger.owner_of(key.id).now()).await;
        clock.advance_ms(5_000);
        let batch = fixture.unconfirmed_batch(&key, sent, id);
        let reconciled = fixture.ledger.reconcile(&batch).await.expect("Redis answers");
        let Reconciled::Unknown(fence) = reconciled else { panic!("{reconciled:?}") };
        assert!(fixture.ledger.fill(&key_record, &fence).await.expect("fill succeeds"));
        assert_eq!(fixture.reconcile(&batch).await.1, 1, "the log is lost");
        assert_eq!(fixture.reconcile(&empty_batch(&key)).await.1, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalidated_record_is_filled_again_and_keeps_its_counts() {
    let (fixture, _clock) = LedgerFixture::at_noon().await;
    let (key, key_record) = fixture.filled_key(10).await;
    fixture.charge_admitted(&key).await;
    fixture.ledger.invalidate_key_record(key.id).await.expect("Redis answers");
    fixture.fill(&key, &key_record).await;
    assert_eq!(fixture.charge_admitted(&key).await, 2);
    let (unknown_key, _) = crate::fixture::new_key(1);
    fixture.ledger.invalidate_key_record(unknown_key.id).await.expect("Redis answers");
    fixture.expect_unknown(&unknown_key).await;
}
