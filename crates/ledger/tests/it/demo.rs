//! The demo's one quota.

use domain::{DEMO_DAILY_MAX, Day, Used};
use ledger::{Charged, DemoVerdict, Ledger, Moment};

use crate::stage::{MIDNIGHT_MS, Stage};

const TODAY: Day = Day((MIDNIGHT_MS / 86_400_000) as u32);

/// The count that an admitted request left, and the day before as it was told.
fn told(verdict: DemoVerdict) -> (u64, Option<Used>) {
    let DemoVerdict::Admitted { charged, yesterday } = verdict else { panic!("not admitted: {verdict:?}") };
    (charged.used, yesterday)
}

async fn admitted(ledger: &Ledger) -> (u64, Option<Used>) {
    told(ledger.charge_demo().await.expect("a verdict"))
}

async fn admitted_knowing(ledger: &Ledger, rolled_up: Option<Used>) -> u64 {
    told(ledger.charge_demo_knowing(rolled_up).await.expect("a verdict")).0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_a_day_are_admitted_and_midnight_opens_the_next() {
    let (stage, clock) = Stage::at_noon().await;
    assert_eq!(stage.ledger.charge_demo().await.expect("a verdict"), DemoVerdict::Unknown);
    assert_eq!(admitted_knowing(&stage.ledger, None).await, 1);
    for count in 2..=DEMO_DAILY_MAX {
        assert_eq!(admitted(&stage.ledger).await, (count, None));
    }
    let noon = Moment(MIDNIGHT_MS + 43_200_000);
    let spent = Charged { now: noon, limit: DEMO_DAILY_MAX, day: TODAY, used: DEMO_DAILY_MAX };
    for _ in 0..3 {
        assert_eq!(stage.ledger.charge_demo().await.expect("a verdict"), DemoVerdict::Spent(spent));
    }
    assert_eq!((spent.remaining(), spent.retry_after_s()), (0, 43_200));

    clock.advance_ms(43_200_000 - 1);
    assert!(matches!(stage.ledger.charge_demo().await.expect("a verdict"), DemoVerdict::Spent(_)));
    clock.advance_ms(1);
    let yesterday = Some(Used { day: TODAY, count: DEMO_DAILY_MAX });
    assert_eq!(admitted(&stage.ledger).await, (1, yesterday));
    clock.advance_ms(-2);
    assert_eq!(admitted(&stage.ledger).await, (2, yesterday), "a clock that goes back reopens no day");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_count_goes_on_from_the_greater_of_record_and_roll_up() {
    let (mut stage, _clock) = Stage::at_noon().await;
    let rolled_up = |count| Some(Used { day: TODAY, count });
    assert_eq!(admitted_knowing(&stage.ledger, rolled_up(7)).await, 8);
    assert_eq!(admitted_knowing(&stage.ledger, rolled_up(500)).await, 9, "what is known needs no roll-up");
    stage.redis.save_snapshot().await.expect("a snapshot");

    stage.redis.flushall().await.expect("a loss");
    assert_eq!(stage.ledger.charge_demo().await.expect("a verdict"), DemoVerdict::Unknown);
    assert_eq!(admitted_knowing(&stage.ledger, rolled_up(9)).await, 10);

    for (count, expected) in [(3, 10), (990, 991)] {
        stage.redis.restore_snapshot().await.expect("a server that comes back");
        assert_eq!(stage.ledger.charge_demo().await.expect("a verdict"), DemoVerdict::Unknown);
        assert_eq!(admitted_knowing(&stage.ledger, rolled_up(count)).await, expected);
    }
}
