//! Waking those who wait: pages by account, the mailer by what it has to send.

use std::time::{Duration, Instant};

use domain::{Day, Used};
use store::{AccountWake, By, RolledUp, Wake, Woken};
use testkit::eventually;
use tokio::time::timeout;

use crate::stage::{PATIENCE, Stage, digest, email, name, node, pause};

/// How long nothing must happen for it to count as nothing.
const QUIET: Duration = Duration::from_millis(100);

async fn woken(wake: &mut AccountWake) -> Woken {
    timeout(PATIENCE, wake.wait()).await.expect("a wake in time").expect("a wake")
}

async fn assert_quiet(wake: &mut AccountWake) {
    assert!(timeout(QUIET, wake.wait()).await.is_err(), "woken by nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_key_and_the_end_of_a_session_wake_their_account() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (by, expected) = (By::Owner(account.id), Woken::Account(account.id));
    let mut wake = store.listen_accounts().await.expect("a listener");
    let key = stage.key_of(&account).await.id;
    assert_eq!(woken(&mut wake).await, expected, "issued");
    store.rename(by, key, &name("another")).await.expect("a name");
    assert_eq!(woken(&mut wake).await, expected, "renamed");
    store.record_pause(&pause(key, 1)).await.expect("a pause");
    assert_eq!(woken(&mut wake).await, expected, "paused");
    store.resume(by, key).await.expect("a change");
    assert_eq!(woken(&mut wake).await, expected, "resumed");

    let session = stage.session_of(&account, digest()).await;
    store.roll_up(&[RolledUp { key, used: Used { day: Day(20_400), count: 1 } }]).await.expect("a roll-up");
    store.resume(by, key).await.expect("no change");
    assert_quiet(&mut wake).await;
    store.end_session(account.id, session).await.expect("an end");
    assert_eq!(woken(&mut wake).await, expected, "a session ended");
    let other = stage.account().await;
    stage.key_of(&other).await;
    assert_eq!(woken(&mut wake).await, Woken::Account(other.id));
    store.delete_account(account.id).await.expect("a deletion");
    assert_eq!(woken(&mut wake).await, expected, "deleted with its account");
    assert_quiet(&mut wake).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_told_that_something_may_be_missed_when_the_server_dies_or_falls_silent() {
    let mut stage = Stage::open().await;
    let hasty = Duration::from_millis(300);
    let mut wake = node(&stage.postgres, hasty).listen_accounts().await.expect("a listener");
    stage.postgres.kill9();
    assert_eq!(woken(&mut wake).await, Woken::All);
    assert!(wake.wait().await.is_err(), "nobody to listen to");
    stage.postgres.restart().await.expect("a server that comes back");
    assert_eq!(woken(&mut wake).await, Woken::All, "made again");
    let heals = async || stage.store.check().await.is_ok();
    eventually("the store heals", PATIENCE, heals).await.expect("an answer");
    let account = stage.account().await;
    stage.key_of(&account).await;
    assert_eq!(woken(&mut wake).await, Woken::Account(account.id));

    stage.postgres.freeze();
    let silence = timeout(PATIENCE, wake.wait()).await.expect("silence is noticed");
    assert!(silence.is_err(), "{silence:?}");
    stage.postgres.thaw();
    eventually("the listener heals", PATIENCE, async || matches!(wake.wait().await, Ok(Woken::All)))
        .await
        .expect("a listener");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_time_loses_no_change() {
    let stage = Stage::open().await;
    let account = stage.account().await;
    // So short that the silence is questioned a few times before the change comes.
    let hasty = node(&stage.postgres, Duration::from_millis(50));
    let mut wake = hasty.listen_accounts().await.expect("a listener");
    let change = async {
        let questioned = "select count(*) from pg_stat_activity where application_name = 'test' and query = 'select 1'";
        let asked = async || stage.sql(questioned).await == "1";
        eventually("the silence is questioned", PATIENCE, asked).await.expect("a question");
        stage.key_of(&account).await;
    };
    let (woken, ()) = tokio::join!(woken(&mut wake), change);
    assert_eq!(woken, Woken::Account(account.id));
}

/// Whether the mailer is woken before its patience ends.
async fn is_woken(wake: &mut Wake, patience: Duration) -> bool {
    let start = Instant::now();
    wake.wait(patience).await.expect("an answer");
    start.elapsed() < patience
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_waits_wakes_the_mailer_and_nothing_else_does() {
    let stage = Stage::open().await;
    let (store, account) = (&stage.store, stage.account().await);
    let (key, address) = (stage.key_of(&account).await.id, email("ada@house.example"));
    let mut wake = store.listen_mail().await.expect("a listener");
    store.invite(&address, &digest()).await.expect("a link that nobody mails");
    store.deactivate(By::Operator, key).await.expect("a change");
    assert!(!is_woken(&mut wake, QUIET).await);

    store.request_signup(&address, "hash", &digest()).await.expect("a wish");
    assert!(is_woken(&mut wake, PATIENCE).await, "a sign-up");
    store.request_reset(&address).await.expect("a wish");
    assert!(is_woken(&mut wake, PATIENCE).await, "a reset");
    store.request_email(account.id, &address).await.expect("a wish");
    assert!(is_woken(&mut wake, PATIENCE).await, "another address");
    store.record_pause(&pause(key, 1)).await.expect("a pause");
    assert!(is_woken(&mut wake, PATIENCE).await, "a pause");
    let today = crate::key_rows::far_from_midnight().await;
    let count = |count| RolledUp { key, used: Used { day: today, count } };
    store.roll_up(&[count(8_000)]).await.expect("a roll-up");
    assert!(is_woken(&mut wake, PATIENCE).await, "near the limit");

    store.roll_up(&[count(8_001)]).await.expect("a roll-up");
    store.resume(By::Operator, key).await.expect("a change");
    store.record_pause(&pause(key, 2)).await.expect("a second pause of the day");
    assert!(!is_woken(&mut wake, QUIET).await, "told already");
}
