//! A key's day.

use domain::{ClearKey, Day, Retired, Standing, Used};
use ledger::Verdict;

use crate::stage::{MIDNIGHT_MS, Stage};

const TODAY: Day = Day((MIDNIGHT_MS / 86_400_000) as u32);

async fn yesterday(stage: &Stage, key: &domain::Key) -> (u64, Option<Used>) {
    let verdict = stage.charge(key).await;
    let Verdict::Admitted { charged, yesterday, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    (charged.used, yesterday)
}

#[tokio::test(flavor = "multi_thread")]
async fn yesterdays_count_is_told_until_it_is_forgotten() {
    let (stage, clock) = Stage::at_noon().await;
    let (key, _) = stage.known(10).await;
    for count in 1..=3 {
        assert_eq!(yesterday(&stage, &key).await, (count, None));
    }
    clock.advance_ms(86_400_000);
    let told = Some(Used { day: TODAY, count: 3 });
    assert_eq!(yesterday(&stage, &key).await, (1, told));
    assert_eq!(yesterday(&stage, &key).await, (2, told));
    stage.ledger.forget_yesterday(key.id).await.expect("an answer");
    assert_eq!(yesterday(&stage, &key).await, (3, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_cut_leaves_nothing_and_never_less() {
    let (stage, _clock) = Stage::at_noon().await;
    let (key, standing) = stage.known(10).await;
    for _ in 0..5 {
        stage.admitted(&key).await;
    }
    stage.ledger.publish(&Standing { daily_limit: 3, generation: 2, ..standing.clone() }).await.expect("a publish");
    let Verdict::DaySpent { charged } = stage.charge(&key).await else { panic!("admitted") };
    assert_eq!((charged.limit, charged.remaining(), charged.retry_after_s()), (3, 0, 43_200));
    stage.ledger.publish(&Standing { daily_limit: 7, generation: 3, ..standing }).await.expect("a publish");
    assert_eq!(stage.admitted(&key).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_secrets_of_a_rolled_key_share_one_quota() {
    let (stage, clock) = Stage::at_noon().await;
    let (old, standing) = stage.known(10).await;
    let new = ClearKey::roll(old.id, || fastrand::u8(..)).key();
    let until_s = (MIDNIGHT_MS + 43_200_000) / 1000 + 60;
    let retired = Some(Retired { digest: old.digest, until_s });
    let rolled = Standing { digest: new.digest, retired, generation: 2, ..standing };
    stage.ledger.publish(&rolled).await.expect("a publish");
    assert_eq!((stage.admitted(&old).await, stage.admitted(&new).await), (1, 2));
    clock.advance_ms(59_999);
    assert_eq!(stage.admitted(&old).await, 3);
    clock.advance_ms(1);
    assert!(matches!(stage.charge(&old).await, Verdict::WrongSecret(_)));
    assert_eq!(stage.admitted(&new).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_day_is_spent_can_still_be_paused() {
    let stage = Stage::open().await;
    let (key, _) = stage.known(1).await;
    stage.admitted(&key).await;
    for _ in 1..300 {
        assert!(matches!(stage.charge(&key).await, Verdict::DaySpent { .. }));
    }
    assert!(matches!(stage.charge(&key).await, Verdict::PausedNow(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keys_have_used_today_is_told_in_the_order_asked() {
    let (stage, _clock) = Stage::at_noon().await;
    let ((busy, _), (idle, _)) = (stage.known(10).await, stage.known(10).await);
    let stranger = crate::stage::mint();
    for _ in 0..3 {
        stage.admitted(&busy).await;
    }
    let told = stage.ledger.used(&[idle.id, stranger.id, busy.id]).await.expect("counts");
    assert_eq!(told, [Some(Used { day: Day(0), count: 0 }), None, Some(Used { day: TODAY, count: 3 })]);
    assert_eq!(stage.ledger.used(&[]).await.expect("none"), []);
}
