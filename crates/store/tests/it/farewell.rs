//! What goes: an account with all that is its own, and whatever has served its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::{Day, Used};
use store::{Account, By, RefusedCount, RefusedReason, RolledUp};
use tokio::task::JoinSet;

use crate::key_rows::far_from_midnight;
use crate::stage::{Stage, digest, email, pause};

const TABLES: [&str; 11] = [
    "accounts", "keys", "pauses", "usage", "refusals", "history", "sessions", "devices", "tickets", "alerts",
    "passkeys",
];
const DAY: Day = Day(20_400);

/// An account with a row in every table.
async fn settled(stage: &Stage) -> Account {
    let (store, account) = (&stage.store, stage.account().await);
    let key = stage.key_of(&account).await.id;
    store.record_pause(&pause(key, 1)).await.expect("a pause");
    store.roll_up(&[RolledUp { key, used: Used { day: DAY, count: 1 } }]).await.expect("a roll-up");
    let refusal = RefusedCount { key, day: DAY, reason: RefusedReason::Paused, count: 1 };
    store.add_refusals(&[refusal]).await.expect("a refusal");
    stage.session_of(&account, digest()).await;
    store.remember_device(account.id, &digest()).await.expect("a device");
    store.add_passkey(account.id, &digest(), "phone", &true.into()).await.expect("a passkey");
    let address = email(&account.email.to_uppercase());
    store.request_signup(&address, "hash", &digest()).await.expect("a wish");
    store.request_reset(&address).await.expect("a wish");
    store.request_email(account.id, &email("new@house.example")).await.expect("a wish");
    account
}

async fn counts(stage: &Stage) -> Vec<(&'static str, u32)> {
    let mut counts = Vec::new();
    for table in TABLES {
        let count = stage.sql(&format!("select count(*) from {table}")).await;
        counts.push((table, count.parse().expect("a number")));
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_account_leaves_nothing_behind_but_the_news_of_its_keys() {
    let stage = Stage::open().await;
    let staying = settled(&stage).await;
    let before = counts(&stage).await;
    let leaving = settled(&stage).await;
    stage.key_of(&leaving).await;
    assert!(counts(&stage).await.iter().zip(&before).all(|(now, before)| now.1 > before.1), "a row in every table");
    let mut keys: Vec<_> = stage.store.keys(leaving.id).await.expect("keys").into_iter().map(|row| row.id).collect();
    keys.sort_unstable();
    stage.sql("delete from outbox").await;

    assert_eq!(stage.store.delete_account(leaving.id).await.expect("a deletion"), keys);
    assert_eq!(counts(&stage).await, before);
    assert!(stage.store.find_account(staying.id).await.expect("an answer").is_some());
    let gone = "select key_id from outbox order by key_id";
    assert_eq!(stage.sql(gone).await, format!("{}\n{}", keys[0], keys[1]));
    let dump = stage.postgres.dump("house").await.expect("a dump");
    let dump = String::from_utf8_lossy(&dump).to_lowercase();
    assert!(dump.contains(&staying.email) && !dump.contains(&leaving.email));
    assert_eq!(stage.store.delete_account(leaving.id).await.expect("no one to delete"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_can_leave_while_their_keys_are_rolled_up() {
    let stage = Stage::open().await;
    let mut accounts = Vec::new();
    let mut keys = Vec::new();
    for _ in 0..20 {
        let account = stage.account().await;
        for _ in 0..10 {
            keys.push(stage.key_of(&account).await.id);
        }
        accounts.push(account);
    }
    let done = Arc::new(AtomicBool::new(false));
    let mut nodes = JoinSet::new();
    for node in 0..3 {
        let (store, keys, done) = (stage.store.clone(), keys.clone(), Arc::clone(&done));
        nodes.spawn(async move {
            for count in (node..).step_by(3) {
                let used = Used { day: DAY, count };
                let counts: Vec<RolledUp> = keys.iter().map(|&key| RolledUp { key, used }).collect();
                store.roll_up(&counts).await.expect("a roll-up");
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
    }
    for account in &accounts {
        assert_eq!(stage.store.delete_account(account.id).await.expect("a deletion").len(), 10);
    }
    done.store(true, Ordering::Relaxed);
    nodes.join_all().await;
    assert_eq!(stage.sql("select count(*) from usage").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_is_forgotten_and_nothing_else() {
    let stage = Stage::open().await;
    let store = &stage.store;
    far_from_midnight().await;
    let (account, key) = (stage.account().await, stage.key().await.id);
    let fill = async || {
        let old = stage.session_of(&account, digest()).await;
        stage.session_of(&account, digest()).await;
        stage.sql(&format!("update sessions set seen_at = now() - interval '2 hours' where id = {old}")).await;
        for age in 0..=4 {
            let alert = format!("insert into alerts select '{key}', (now() at time zone 'utc')::date - {age}, 'near'");
            stage.sql(&alert).await;
        }
        for (number, (created, expires)) in [(0, 1), (-30, -1), (-90, -1), (-90, 1)].into_iter().enumerate() {
            let ticket = format!(
                "insert into tickets (kind, email, created_at, expires_at)
                 values ('reset', '{number}', now() + interval '{created} minutes', now() + interval '{expires} minutes')"
            );
            stage.sql(&ticket).await;
        }
        for minutes in [-1, 1] {
            let digest = format!("sha256('{minutes}')");
            let ceremony =
                format!("insert into ceremonies values ({digest}, 'true', now() + interval '{minutes} minutes')");
            stage.sql(&ceremony).await;
        }
    };
    fill().await;
    store.forget_expired(Duration::from_secs(3_600)).await.expect("an answer");
    assert_eq!(store.sessions(account.id, Duration::from_secs(86_400)).await.expect("sessions").len(), 1);
    assert_eq!(stage.sql("select string_agg(email, ' ' order by email) from tickets").await, "0 1 3");
    assert_eq!(stage.sql("select count(*), bool_and(expires_at > now()) from ceremonies").await, "1|t");
    assert_eq!(stage.sql("select count(*), (now() at time zone 'utc')::date - min(day) from alerts").await, "4|3");
    store.deactivate(By::Operator, key).await.expect("a key that is still there");
}
