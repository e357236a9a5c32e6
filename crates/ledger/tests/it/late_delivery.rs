//! Calls that reach Redis late, for example through a tunnel that buffers data. They have no effect, so they can be
//! reconciled.

use std::time::Duration;

use ipseity_domain::ApiKey;
use ipseity_ledger::{AppliedRestrictions, ChargeError, ChargeId, Ledger, LedgerError, ReconcileBatch};
use ipseity_testkit::{FaultConfig, FaultProxy, eventually};

use crate::fixture::{LedgerFixture, NOON, TODAY, arrived_now, empty_batch, ledger_with_timeout};

const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// Sends a charge to a server that cannot answer.
async fn lose_reply(ledger: &Ledger, key: &ApiKey, id: ChargeId) -> ChargeError {
    let failed = ledger.charge(key, id, arrived_now(), AppliedRestrictions::default()).await.expect_err("no reply");
    assert!(matches!(failed.error, LedgerError::ReplyTimeout), "{failed:?}");
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_is_applied_for_a_second_and_then_expires() {
    let (mut fixture, clock) = LedgerFixture::at_noon().await;
    let ledger = ledger_with_timeout(fixture.redis.url(), SHORT_TIMEOUT);
    let (key, _) = fixture.filled_key(10_000).await;
    clock.advance_ms(1_000);
    // The clock is frozen, and the estimate of it at most 100 ms ahead or behind.
    for (held_ms, is_applied) in [(900, true), (1_101, false)] {
        let used = fixture.charge_admitted(&key).await;
        ledger.ping().await.expect("Redis answers");
        ledger
            .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
            .await
            .expect("the node knows the clock");
        fixture.redis.freeze();
        let id = ChargeId::next();
        let sent = lose_reply(&ledger, &key, id).await.sent.expect("charge was sent");
        clock.advance_ms(held_ms);
        fixture.redis.thaw();
        let expected = used + 2 + u64::from(is_applied);
        assert_eq!(fixture.charge_admitted(&key).await, expected, "held for {held_ms} ms");
        clock.advance_ms(1_101);
        assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (used + 3, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charge_held_by_a_tunnel_is_not_applied() {
    let fixture = LedgerFixture::open().await;
    let (key, _) = fixture.filled_key(10_000).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let proxy = FaultProxy::open(fixture.redis.address()).expect("proxy starts");
    let ledger = ledger_with_timeout(format!("redis://{}", proxy.address()), SHORT_TIMEOUT);
    ledger
        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect("charge succeeds");
    proxy.set_faults(FaultConfig { delay: Duration::from_millis(1_500), ..FaultConfig::none() });
    let calls_before = fixture.redis.command_calls().await.expect("INFO succeeds")["evalsha"];
    let id = ChargeId::next();
    let sent = lose_reply(&ledger, &key, id).await.sent.expect("charge was sent");
    let is_delivered = async || {
        let calls = fixture.redis.command_calls().await.expect("INFO succeeds");
        calls["evalsha"] > calls_before
    };
    eventually("charge is delivered", Duration::from_secs(10), is_delivered).await.expect("charge is delivered");
    assert_eq!(fixture.charge_admitted(&key).await, 2);
    assert_eq!(fixture.reconcile(&fixture.unconfirmed_batch(&key, sent, id)).await, (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_delivered_late_is_not_counted() {
    let (mut fixture, clock) = LedgerFixture::at_noon().await;
    let ledger = ledger_with_timeout(fixture.redis.url(), SHORT_TIMEOUT);
    let (key, key_record) = fixture.filled_key(10_000).await;
    clock.advance_ms(1_000);
    let mut batch = ReconcileBatch { days: vec![(TODAY, 5)], ..empty_batch(&key) };
    ledger.reconcile(&empty_batch(&key)).await.expect("the node knows the clock");
    fixture.redis.freeze();
    let failed = ledger.reconcile(&batch).await.expect_err("no reply");
    clock.advance_ms(1_101);
    fixture.redis.thaw();
    assert_eq!(fixture.charge_admitted(&key).await, 1, "the batch was not counted");

    // It was sent again and counted. Then Redis loses its memory, and the number of the batch with it.
    batch.first_attempt = failed.sent;
    batch.number += 1;
    assert_eq!(fixture.reconcile(&batch).await, (6, 0));
    fixture.redis.flushall().await.expect("data is deleted");
    let usage = Some(ipseity_domain::DailyUsage { day: TODAY, count: 6 });
    fixture.fill(&key, &ipseity_domain::KeyRecord { usage, ..key_record }).await;
    assert_eq!(fixture.reconcile(&batch).await, (6, 5), "not counted twice, but reported");
    assert!(failed.sent.is_some_and(|sent| sent.at > NOON));
}
