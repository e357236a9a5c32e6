//! Lanes of alerts: no claim depends on their number, none is lost, and accounts share the requests of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipseity_store::{AlertChannelKind, AlertClaim, AlertKind, QueuedAlert, Store};
use ipseity_testkit::eventually;

use crate::alerts::{add_channel, claim_channels, key_with_channel, queue_resumptions, update_alerts};
use crate::fixture::{StoreFixture, TEST_TIMEOUT, open_store, pause, session_limits};

/// Adds failing alerts of this many keys to a channel.
async fn queue_failing_lanes(fixture: &StoreFixture, channel: i64, count: usize) {
    let failing = format!(
        "insert into notices (account_id, kind, key_id, channel_id, message_id, details, expires_at, tries, try_at, outcome)
         select account_id, 'alert_resumed', 'w' || lpad(n::text, 9, '0'), id, gen_random_uuid(),
             '{{\"name\": \"\", \"day\": \"2026-11-19\", \"used\": 0, \"daily_limit\": 0, \"burst_limit\": 0}}',
             now() + interval '1 day', 1, now() + (n % 2 - 0.5) * interval '1 hour', 'HTTP 503'
         from alert_channels, generate_series(1, {count}) n where id = {channel}"
    );
    update_alerts(fixture, &failing).await;
    fixture.sql("analyze").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_does_not_depend_on_the_number_of_failing_keys() {
    let fixture = StoreFixture::open().await;
    let (_, key, channel) = key_with_channel(&fixture).await;
    queue_failing_lanes(&fixture, channel, 20_000).await;
    queue_resumptions(&fixture, key, 1).await;
    let started = Instant::now();
    let claimed = claim_channels(&fixture, 64, &[(channel, 7)]).await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(claimed.len(), 1, "the channel may send one more");
    let explained = fixture.sql("explain select * from alert_lanes where channel_id = 1 and is_retry and try_at <= now() order by try_at limit 8").await;
    assert!(explained.contains("alert_lanes_due"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_trigger_runs_for_each_alert() {
    let fixture = StoreFixture::open().await;
    let per_row = "select string_agg(tgname, ' ') from pg_trigger
                   where tgrelid in ('alerts'::regclass, 'notices'::regclass) and not tgisinternal and tgtype & 5 = 5";
    assert_eq!(fixture.sql(per_row).await, "", "a usage flush adds thousands");
}

/// Delivers alerts until it is stopped.
async fn deliver(store: Store, is_stopped: Arc<AtomicBool>) -> Vec<QueuedAlert> {
    // A lane that is forgotten would be looked at only after this.
    let (attempt_max, mut delivered) = (Duration::from_secs(600), Vec::new());
    while !is_stopped.load(Ordering::Acquire) {
        let claim = AlertClaim::Channels {
            count_max: 8,
            retries_max: 8,
            per_channel_max: 8,
            per_account_max: 8,
            attempt_max,
            busy: &[],
        };
        for alert in store.alert_queue().claim(claim).await.expect("claim succeeds") {
            store.alert_queue().mark_sent(alert.id, "HTTP 200").await.expect("outcome is stored");
            delivered.push(alert);
        }
    }
    delivered
}

#[tokio::test(flavor = "multi_thread")]
async fn no_alert_is_forgotten_or_claimed_twice_while_nodes_queue_and_claim() {
    let fixture = StoreFixture::open().await;
    let (_, key, _) = key_with_channel(&fixture).await;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let start = |_| tokio::spawn(deliver(open_store(&fixture.postgres, TEST_TIMEOUT), Arc::clone(&is_stopped)));
    let nodes: Vec<_> = (0..3).map(start).collect();
    let event = format!(
        "begin; insert into history (key_id, at, act, actor) values ('{key}', now(), 'resumed', 'owner'); commit;"
    );
    let events = event.repeat(40);
    tokio::join!(fixture.sql(&events), fixture.sql(&events));
    let left = "select count(*) from alert_lanes where channel_id > 0";
    eventually("all alerts are delivered", Duration::from_secs(120), async || fixture.sql(left).await == "0")
        .await
        .expect("empty lanes are deleted");
    is_stopped.store(true, Ordering::Release);
    let mut ids = Vec::new();
    for node in nodes {
        let delivered: Vec<_> = node.await.expect("node ends").iter().map(|alert| alert.id).collect();
        assert!(delivered.is_sorted(), "in order");
        ids.extend(delivered);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 80, "every alert is delivered");
    assert_eq!(fixture.sql("select max(tries) from notices where channel_id > 0").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_share_the_requests_of_a_node() {
    let fixture = StoreFixture::open().await;
    let greedy = fixture.create_account().await;
    for _ in 0..3 {
        let channel = add_channel(&fixture, &greedy, &[AlertKind::Resumed]).await;
        queue_failing_lanes(&fixture, channel, 20).await;
    }
    let (_, key, channel) = key_with_channel(&fixture).await;
    queue_resumptions(&fixture, key, 1).await;
    let attempt_max = Duration::from_secs(10);
    let claim = |count_max, busy| AlertClaim::Channels {
        count_max,
        retries_max: 64,
        per_channel_max: 8,
        per_account_max: 10,
        attempt_max,
        busy,
    };
    let queue = fixture.store.alert_queue();
    let claimed = queue.claim(claim(2, &[])).await.expect("claim succeeds");
    assert!(claimed.iter().any(|alert| alert.channel_id == channel), "one of each account");
    let claimed = queue.claim(claim(64, &[])).await.expect("claim succeeds");
    assert_eq!(claimed.len(), 10, "of 24 that the channels may have");
    let busy: Vec<_> = claimed.iter().map(|alert| (alert.channel_id, 3)).collect();
    let busy = [busy[0], busy[1], busy[2]];
    let claimed = queue.claim(claim(64, &busy)).await.expect("claim succeeds");
    assert!(claimed.len() <= 1, "nine are on their way");
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_receiver_turns_its_channel_off_until_the_owner_turns_it_on() {
    let fixture = StoreFixture::open().await;
    let (account, key, id) = key_with_channel(&fixture).await;
    let (queue, channels) = (fixture.store.alert_queue(), fixture.store.alert_channels());
    queue_resumptions(&fixture, key, 2).await;
    let alert = claim_channels(&fixture, 1, &[]).await.pop().expect("an alert is due");
    let url = alert.target.url().expect("a channel").to_owned();
    let state = "select string_agg(coalesce(outcome, 'pending'), ', ' order by id) from notices where channel_id > 0";

    // The owner changed the URL while the request was on its way.
    channels
        .update(account.id, id, Some("https://other.example/"), Some(&[AlertKind::Resumed]))
        .await
        .expect("URL is changed");
    queue.mark_gone(&alert, &url, "HTTP 410").await.expect("outcome is stored");
    assert_eq!(fixture.sql(state).await, "HTTP 410, pending");
    let channel = channels.list(account.id, Some(id)).await.expect("list is read").remove(0);
    assert_eq!((channel.off_since_s, channel.pending), (None, 2), "tried again at the new URL");

    update_alerts(&fixture, "update notices set try_at = now() where mailed_at is null").await;
    let alert = claim_channels(&fixture, 1, &[]).await.pop().expect("the alert is due again");
    for _ in 0..2 {
        queue.mark_gone(&alert, "https://other.example/", "HTTP 410").await.expect("outcome is stored");
    }
    assert_eq!(fixture.sql(state).await, "HTTP 410, the channel is off");
    let channel = channels.list(account.id, Some(id)).await.expect("list is read").remove(0);
    assert!(channel.off_since_s.is_some() && channel.pending == 0);
    let emails = "select string_agg(subject, ' ') from notices where kind = 'alert_channel_off'";
    assert_eq!(fixture.sql(emails).await, "https://other.example", "one email, without the path");
    queue_resumptions(&fixture, key, 1).await;
    channels.queue_test(account.id, id).await.expect("a test is queued");
    assert!(claim_channels(&fixture, 8, &[]).await.is_empty(), "nothing is sent while it is off");
    assert_eq!(fixture.sql(state).await, "HTTP 410, the channel is off, the channel is off");

    let stranger = fixture.create_account().await;
    channels.turn_on(stranger.id, id).await.expect_err("the channel of another account");
    channels.turn_on(account.id, id).await.expect("channel is on");
    queue_resumptions(&fixture, key, 1).await;
    assert_eq!(claim_channels(&fixture, 8, &[]).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn delay_after_a_failed_attempt_ends_when_the_owner_corrects_the_channel() {
    let fixture = StoreFixture::open().await;
    let (account, key, id) = key_with_channel(&fixture).await;
    let (queue, channels) = (fixture.store.alert_queue(), fixture.store.alert_channels());
    let claim_one = async || claim_channels(&fixture, 8, &[]).await.pop().expect("an alert is due");
    let fail = async || {
        let alert = claim_one().await;
        queue.mark_attempt_failed(&alert, "HTTP 503", Duration::from_secs(3600)).await.expect("outcome is stored");
        assert!(claim_channels(&fixture, 8, &[]).await.is_empty(), "the next attempt is an hour away");
        alert.message_id
    };
    queue_resumptions(&fixture, key, 1).await;
    let failed = fail().await;
    channels
        .update(account.id, id, Some("https://new.example/"), Some(&[AlertKind::Resumed]))
        .await
        .expect("URL is changed");
    let again = claim_one().await;
    assert_eq!(again.message_id, failed);
    queue.mark_sent(again.id, "HTTP 204").await.expect("outcome is stored");

    // As if another key's alert found out that the receiver is gone.
    queue_resumptions(&fixture, key, 1).await;
    fail().await;
    fixture
        .sql(
            "update alert_channels set off_since = now(); update notices set failed_at = now() where mailed_at is null",
        )
        .await;
    channels.turn_on(account.id, id).await.expect("channel is on");
    queue_resumptions(&fixture, key, 1).await;
    queue.mark_sent(claim_one().await.id, "HTTP 204").await.expect("outcome is stored");

    channels.queue_test(account.id, id).await.expect("a test is queued");
    let failed = fail().await;
    channels.queue_test(account.id, id).await.expect("a test is queued");
    let first = claim_one().await;
    assert_eq!(first.message_id, failed);
    queue.mark_sent(first.id, "HTTP 204").await.expect("outcome is stored");
    assert_eq!(claim_one().await.kind, AlertKind::Test);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_url_turns_a_channel_on() {
    let fixture = StoreFixture::open().await;
    let (account, _, id) = key_with_channel(&fixture).await;
    let channels = fixture.store.alert_channels();
    fixture.sql("update alert_channels set off_since = now()").await;
    let is_off = async || channels.list(account.id, Some(id)).await.expect("list is read")[0].off_since_s.is_some();
    let url = fixture.sql("select url from alert_channels").await;
    channels.update(account.id, id, Some(&url), Some(&[AlertKind::Paused])).await.expect("alerts are changed");
    assert!(is_off().await, "the receiver is the same");
    channels
        .update(account.id, id, Some("https://new.example/"), Some(&[AlertKind::Paused]))
        .await
        .expect("URL is changed");
    assert!(!is_off().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_redelivery_is_queued_once() {
    let fixture = StoreFixture::open().await;
    let (account, key, id) = key_with_channel(&fixture).await;
    queue_resumptions(&fixture, key, 1).await;
    let alert = claim_channels(&fixture, 1, &[]).await.pop().expect("an alert is due");
    fixture.store.alert_queue().mark_sent(alert.id, "HTTP 200").await.expect("outcome is stored");
    let redeliver = || fixture.store.alert_channels().redeliver(account.id, id, alert.id);
    let (first, second, third) = tokio::join!(redeliver(), redeliver(), redeliver());
    first.and(second).and(third).expect("redelivery is queued");
    assert_eq!(fixture.sql("select count(*) from notices where channel_id > 0").await, "2");
    assert_eq!(claim_channels(&fixture, 8, &[]).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_and_account_can_be_deleted_while_their_alerts_are_sent() {
    let fixture = StoreFixture::open().await;
    let (account, key, id) = key_with_channel(&fixture).await;
    let channels = fixture.store.alert_channels();
    let other =
        channels.create(account.id, AlertChannelKind::Slack, "https://b.example/", &[AlertKind::Resumed], &[1; 32], 5);
    other.await.expect("channel is created");
    queue_resumptions(&fixture, key, 2).await;
    let claimed = claim_channels(&fixture, 8, &[]).await;
    assert_eq!(claimed.len(), 2);
    channels.delete(account.id, id).await.expect("channel is deleted");
    fixture.store.accounts().delete(account.id, None).await.expect("account is deleted");
    let queue = fixture.store.alert_queue();
    queue.mark_sent(claimed[0].id, "HTTP 200").await.expect("late outcome is ignored");
    let repeated = queue.mark_attempt_failed(&claimed[1], "HTTP 500", Duration::ZERO).await;
    assert!(!repeated.expect("late outcome is ignored"));
    queue.mark_gone(&claimed[1], "https://b.example/", "HTTP 410").await.expect("late outcome is ignored");
    fixture.sql("update alert_lanes set try_at = now()").await;
    fixture.store.delete_expired(session_limits(Duration::from_secs(60))).await.expect("retention runs");
    assert_eq!(fixture.sql("select count(*) from alert_lanes").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_that_was_ahead_holds_no_alert_back() {
    let fixture = StoreFixture::open().await;
    let (_, key, channel) = key_with_channel(&fixture).await;
    queue_resumptions(&fixture, key, 1).await;
    fixture.store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    let ahead = "update notices set try_at = now() + interval '1 year', created_at = now() + interval '1 year'";
    update_alerts(&fixture, ahead).await;
    fixture.store.delete_expired(session_limits(Duration::from_secs(60))).await.expect("retention runs");
    let claimed = claim_channels(&fixture, 8, &[]).await;
    assert_eq!(claimed.iter().map(|alert| alert.channel_id).collect::<Vec<_>>(), [channel]);
    let emails = fixture.store.alert_queue().claim(AlertClaim::Email).await.expect("claim succeeds");
    assert_eq!(emails.len(), 1);
    let late = "select count(*) from notices where mailed_at is null and try_at > now() + interval '2 hours'";
    assert_eq!(fixture.sql(late).await, "0", "security emails neither");
}
