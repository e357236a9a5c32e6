//! Deletion of accounts with all their data, and of expired rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipseity_domain::{DailyUsage, UtcDay};
use ipseity_store::{Account, Actor, KeyDailyUsage, NewIdentity, RefusalCount, RefusalReason};
use tokio::task::JoinSet;

use crate::fixture::{DATABASE, EMAILS_PER_HOUR_MAX, StoreFixture, email, pause, random_digest, session_limits};
use crate::key_summaries::wait_past_midnight;

const TABLES: [&str; 14] = [
    "accounts",
    "keys",
    "pauses",
    "usage",
    "refusals",
    "history",
    "sessions",
    "devices",
    "tickets",
    "alerts",
    "passkeys",
    "identities",
    "notices",
    "usage_hours",
];
const DAY: UtcDay = UtcDay(20_400);

/// An account with a row in every table.
async fn create_account_in_every_table(fixture: &StoreFixture) -> Account {
    let (store, account) = (&fixture.store, fixture.create_account().await);
    let key = fixture.create_key_for(&account).await.id;
    store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    store
        .usage()
        .merge_counts(&[KeyDailyUsage { key, usage: DailyUsage { day: DAY, count: 1 } }])
        .await
        .expect("usage is merged");
    let refusal = RefusalCount { key, day: DAY, reason: RefusalReason::Paused, count: 1 };
    store.usage().add_refusals(&[refusal]).await.expect("refusal is added");
    fixture.open_session_for(&account, random_digest()).await;
    store.devices().remember(account.id, &random_digest(), "Firefox").await.expect("device is recorded");
    fixture.add_passkey(&account, &random_digest()).await;
    let session = fixture.open_session_for(&account, random_digest()).await;
    let identity = NewIdentity { issuer: "https://idp.example", subject: &account.email, label: &account.email };
    store.identities().link(account.id, session, &identity).await.expect("identity is linked");
    let address = email(&account.email.to_uppercase());
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_signup(&address, "hash", &random_digest())
        .await
        .expect("request is stored");
    store.email_requests(EMAILS_PER_HOUR_MAX).request_password_reset(&address).await.expect("request is stored");
    store
        .email_requests(EMAILS_PER_HOUR_MAX)
        .request_email_change(account.id, &email("new@ipseity.example"))
        .await
        .expect("request is stored");
    account
}

async fn row_counts(fixture: &StoreFixture) -> Vec<(&'static str, u32)> {
    let mut counts = Vec::new();
    for table in TABLES {
        let count = fixture.sql(&format!("select count(*) from {table}")).await;
        counts.push((table, count.parse().expect("number parses")));
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_account_leaves_only_queues_and_the_security_log() {
    let fixture = StoreFixture::open().await;
    let kept_account = create_account_in_every_table(&fixture).await;
    let before = row_counts(&fixture).await;
    let deleted_account = create_account_in_every_table(&fixture).await;
    fixture.create_key_for(&deleted_account).await;
    assert!(
        row_counts(&fixture).await.iter().zip(&before).all(|(now, before)| now.1 > before.1),
        "every table has a row of the account"
    );
    let mut keys: Vec<_> = fixture
        .store
        .keys()
        .list(deleted_account.id)
        .await
        .expect("keys are listed")
        .into_iter()
        .map(|row| row.id)
        .collect();
    keys.sort_unstable();
    fixture.sql("delete from outbox").await;
    let id = deleted_account.id;
    let add_alerts = format!(
        "insert into notices (account_id, kind, key_id, channel_id, message_id, mailed_at, expires_at)
         select {id}, 'alert_paused', '', 0, gen_random_uuid(), mailed_at, now() + interval '1 day'
         from unnest(array[null, now()]) mailed_at"
    );
    fixture.sql(&add_alerts).await;

    assert_eq!(fixture.store.accounts().delete(deleted_account.id, None).await.expect("account is deleted"), keys);
    let notices = format!("from notices where account_id = {}", deleted_account.id);
    assert_eq!(fixture.sql(&format!("select count(*) {notices} and kind = 'account_deleted'")).await, "1");
    assert_eq!(fixture.sql(&format!("select count(*) {notices} and channel_id is not null")).await, "0");
    fixture.sql(&format!("delete {notices}")).await;
    assert_eq!(row_counts(&fixture).await, before);
    assert!(fixture.store.accounts().find(kept_account.id).await.expect("query succeeds").is_some());
    let outbox_query = "select key_id from outbox order by key_id";
    assert_eq!(fixture.sql(outbox_query).await, format!("{}\n{}", keys[0], keys[1]));
    let dump = fixture.postgres.dump(DATABASE).await.expect("database is dumped");
    let dump = String::from_utf8_lossy(&dump).to_lowercase();
    assert!(dump.contains(&kept_account.email) && !dump.contains(&deleted_account.email));
    assert_eq!(
        fixture.store.accounts().delete(deleted_account.id, None).await.expect("repeated deletion succeeds"),
        []
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_can_be_deleted_during_usage_merges() {
    let fixture = StoreFixture::open().await;
    let mut accounts = Vec::new();
    let mut keys = Vec::new();
    for _ in 0..20 {
        let account = fixture.create_account().await;
        for _ in 0..10 {
            keys.push(fixture.create_key_for(&account).await.id);
        }
        accounts.push(account);
    }
    let done = Arc::new(AtomicBool::new(false));
    let mut nodes = JoinSet::new();
    for node in 0..3 {
        let (store, keys, done) = (fixture.store.clone(), keys.clone(), Arc::clone(&done));
        nodes.spawn(async move {
            for count in (node..).step_by(3) {
                let usage = DailyUsage { day: DAY, count };
                let counts: Vec<KeyDailyUsage> = keys.iter().map(|&key| KeyDailyUsage { key, usage }).collect();
                store.usage().merge_counts(&counts).await.expect("usage is merged");
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
    }
    for account in &accounts {
        assert_eq!(fixture.store.accounts().delete(account.id, None).await.expect("account is deleted").len(), 10);
    }
    done.store(true, Ordering::Relaxed);
    nodes.join_all().await;
    assert_eq!(fixture.sql("select count(*) from usage").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_expired_rows_are_deleted() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    wait_past_midnight().await;
    let (account, key) = (fixture.create_account().await, fixture.create_key().await.id);
    let insert_rows = async || {
        let old = fixture.open_session_for(&account, random_digest()).await;
        fixture.open_session_for(&account, random_digest()).await;
        fixture.sql(&format!("update sessions set seen_at = now() - interval '2 hours' where id = {old}")).await;
        for age in 0..=4 {
            let alert = format!("insert into alerts select '{key}', (now() at time zone 'utc')::date - {age}, 'near'");
            fixture.sql(&alert).await;
        }
        for (number, (created, expires)) in [(0, 1), (-30, -1), (-90, -1), (-90, 1)].into_iter().enumerate() {
            let insert_token = format!(
                "insert into tickets (kind, email, created_at, expires_at)
                 values ('reset', '{number}', now() + interval '{created} minutes', now() + interval '{expires} minutes')"
            );
            fixture.sql(&insert_token).await;
        }
        for minutes in [-1, 1] {
            let insert_notice = format!(
                "insert into notices (account_id, kind, email, expires_at)
                 values ({}, 'email', '{minutes}', now() + interval '{minutes} minutes')",
                account.id
            );
            fixture.sql(&insert_notice).await;
            let insert_alerts = format!(
                "insert into notices (account_id, kind, key_id, channel_id, message_id, mailed_at, expires_at)
                 select {}, 'alert_paused', age, channel, gen_random_uuid(), case when channel > 0 then now() end,
                     now() - make_interval(days => age) + interval '{minutes} minutes'
                 from unnest(array[0, 30]) age, unnest(array[0, 1]) channel",
                account.id
            );
            fixture.sql(&insert_alerts).await;
            let digest = format!("sha256('{minutes}')");
            let insert_state =
                format!("insert into ceremonies values ({digest}, 'true', now() + interval '{minutes} minutes')");
            fixture.sql(&insert_state).await;
        }
    };
    insert_rows().await;
    fixture
        .sql(
            "insert into operators (name, role) values ('ada', 'admin');
             insert into operator_links (digest, expires_at)
             select sha256(age::text::bytea), now() + make_interval(hours => age) from unnest(array[-1, 1]) age;
             insert into operator_sessions (operator_id, digest, label, created_at)
             select id, sha256(age::text::bytea), '', now() - make_interval(days => age)
             from operators, unnest(array[30, 32]) age",
        )
        .await;
    store.delete_expired(session_limits(Duration::from_secs(3_600))).await.expect("deletion succeeds");
    assert_eq!(
        store
            .sessions()
            .list(account.id, session_limits(Duration::from_secs(86_400)))
            .await
            .expect("sessions are listed")
            .len(),
        1
    );
    assert_eq!(fixture.sql("select string_agg(email, ' ' order by email) from tickets").await, "0 1 3");
    assert_eq!(fixture.sql("select count(*), bool_and(expires_at > now()) from ceremonies").await, "1|t");
    assert_eq!(fixture.sql("select count(*), bool_and(expires_at > now()) from operator_links").await, "1|t");
    let sessions = fixture.sql("select count(*), now()::date - min(created_at)::date from operator_sessions").await;
    assert_eq!(sessions, "1|30");
    assert_eq!(fixture.sql("select email from notices where kind = 'email'").await, "1");
    // Alerts that could not be sent by email are kept for 2 more days, and the log of a channel for 30.
    let alerts = "select string_agg(channel_id || '/' || key_id, ' ' order by channel_id, key_id, id) from notices where kind = 'alert_paused'";
    assert_eq!(fixture.sql(alerts).await, "0/0 0/0 1/0 1/0 1/30");
    assert_eq!(fixture.sql("select count(*), (now() at time zone 'utc')::date - min(day) from alerts").await, "4|3");
    store.keys().deactivate(Actor::Operator, key).await.expect("key still exists");
}
