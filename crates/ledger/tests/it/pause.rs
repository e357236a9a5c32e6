//! Pauses happen once, and last until the key is resumed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::{ApiKey, KeyFlags, KeyRecord};
use ipseity_ledger::{AppliedRestrictions, ChargeId, Ledger, Verdict};
use redis::cmd;
use tokio::task::JoinSet;

use crate::fixture::{LedgerFixture, arrived_now, ledger_on, sweep};

pub fn is_paused(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Paused { .. })
}

/// Sends 400 concurrent charges of one key over several nodes, and counts the verdicts.
pub async fn race_charges(ledgers: &[Arc<Ledger>], key: ApiKey) -> BTreeMap<&'static str, usize> {
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let ledger = Arc::clone(&ledgers[task % ledgers.len()]);
        // 400 in total: 16 × 7 + 48 × 6.
        let charges = if task < 16 { 7 } else { 6 };
        tasks.spawn(async move {
            let mut verdicts = Vec::new();
            for _ in 0..charges {
                verdicts.push(
                    ledger
                        .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
                        .await
                        .expect("charge succeeds"),
                );
            }
            verdicts
        });
    }
    let mut outcomes = BTreeMap::new();
    for verdict in tasks.join_all().await.into_iter().flatten() {
        let name = match verdict {
            Verdict::Admitted { .. } => "admitted",
            Verdict::PausedNow { .. } => "paused now",
            Verdict::Paused { .. } => "paused",
            Verdict::Unknown(_)
            | Verdict::WrongSecret(_)
            | Verdict::Inactive(_)
            | Verdict::QuotaExhausted { .. }
            | Verdict::Expired(_)
            | Verdict::Outdated { .. }
            | Verdict::Restricted(_) => "other",
        };
        *outcomes.entry(name).or_insert(0) += 1;
    }
    outcomes
}

/// The expected verdicts of `race_charges`.
pub fn expected_race_outcome() -> BTreeMap<&'static str, usize> {
    BTreeMap::from([("admitted", 300), ("paused now", 1), ("paused", 99)])
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_charges_admit_exactly_300_and_pause_the_key_once() {
    let fixture = LedgerFixture::open().await;
    let (key, _) = fixture.filled_key(10_000).await;
    let ledgers: Vec<_> = (0..8).map(|_| Arc::new(ledger_on(&fixture.redis))).collect();
    assert_eq!(race_charges(&ledgers, key).await, expected_race_outcome());
}

#[tokio::test(flavor = "multi_thread")]
async fn unrecorded_pause_ends_only_by_a_resume() {
    let mut fixture = LedgerFixture::open().await;
    let (key, key_record) = fixture.filled_key(10_000).await;
    let pause = fixture.charge_until_paused(&key).await;
    assert_eq!((pause.key, pause.burst_epoch), (key.id, key_record.burst_epoch));
    assert_eq!(pause.counts.iter().map(|&count| u32::from(count)).sum::<u32>(), 301);

    let plan_change = KeyRecord { daily_limit: 20_000, generation: 2, ..key_record.clone() };
    fixture.publish(&plan_change).await;
    assert!(is_paused(&fixture.charge(&key).await), "after a plan change");

    fixture.redis.save_snapshot().await.expect("snapshot is saved");
    fixture.redis.restore_snapshot().await.expect("Redis restarts");
    fixture.fill(&key, &plan_change).await;
    assert!(is_paused(&fixture.charge(&key).await), "after a fill");

    let redis_keys: Vec<String> = cmd("KEYS")
        .arg(format!("*:{}", key.id))
        .query_async(&mut fixture.connection().await)
        .await
        .expect("KEYS succeeds");
    cmd("DEL").arg(redis_keys).exec_async(&mut fixture.connection().await).await.expect("data is deleted");
    fixture.fill(&key, &plan_change).await;
    assert!(is_paused(&fixture.charge(&key).await), "after only the record was lost");

    let resumed = KeyRecord { flags: KeyFlags::default(), generation: 4, burst_epoch: 2, ..plan_change };
    fixture.publish(&resumed).await;
    for _ in 0..300 {
        fixture.charge_admitted(&key).await;
    }
    assert!(matches!(fixture.charge(&key).await, Verdict::PausedNow { burst_epoch: 2, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_key_starts_a_new_window_and_keeps_its_daily_count() {
    let fixture = LedgerFixture::open().await;
    let (key, key_record) = fixture.filled_key(10_000).await;
    let resumed = |burst_epoch| KeyRecord { generation: burst_epoch, burst_epoch, ..key_record.clone() };
    fixture.charge_until_paused(&key).await;
    fixture.publish(&resumed(2)).await;
    for used in 301..=500 {
        assert_eq!(fixture.charge_admitted(&key).await, used);
    }
    // A pause that only PostgreSQL has.
    fixture.publish(&resumed(3)).await;
    for used in 501..=800 {
        assert_eq!(fixture.charge_admitted(&key).await, used);
    }
    assert!(matches!(fixture.charge(&key).await, Verdict::PausedNow { burst_epoch: 3, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_pause_survives_a_change_made_before_it() {
    let fixture = LedgerFixture::open().await;
    let (key, key_record) = fixture.filled_key(10_000).await;
    let pause = fixture.charge_until_paused(&key).await;
    fixture.ledger.mark_pause_recorded(&pause).await.expect("pause is marked as recorded");
    let late = KeyRecord { daily_limit: 20_000, generation: 2, ..key_record };
    fixture.publish(&late).await;
    assert!(is_paused(&fixture.charge(&key).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_at_a_time_sweeps_pauses_until_they_are_recorded() {
    let (fixture, clock) = LedgerFixture::at_noon().await;
    let other_ledger = ledger_on(&fixture.redis);
    let interval = Duration::from_secs(2);
    let (first, _) = fixture.filled_key(10_000).await;
    let (second, _) = fixture.filled_key(10_000).await;
    let mut expected = [fixture.charge_until_paused(&first).await, fixture.charge_until_paused(&second).await];
    expected.sort_by_key(|pause| pause.key);

    let mut swept = sweep(&fixture.ledger, interval).await.expect("first sweep").pauses;
    swept.sort_by_key(|pause| pause.key);
    assert_eq!(swept, expected);
    assert!(sweep(&other_ledger, interval).await.is_none(), "only one node sweeps per interval");

    fixture.ledger.mark_pause_recorded(&expected[0]).await.expect("pause is marked as recorded");
    clock.advance_ms(2_000);
    assert_eq!(sweep(&other_ledger, interval).await.expect("interval is over").pauses, expected[1..]);
    other_ledger.mark_pause_recorded(&expected[1]).await.expect("pause is marked as recorded");
    clock.advance_ms(2_000);
    assert_eq!(sweep(&fixture.ledger, interval).await.expect("interval is over").pauses, []);
    assert!(is_paused(&fixture.charge(&first).await));
}
