//! Alerts: one for each pause, and at most one of each other kind per key per day, to the channels that want it, in order.

use std::time::{Duration, Instant};

use ipseity_domain::{DailyUsage, KeyId, Limits, Plan, UtcDay};
use ipseity_store::{
    Account, Actor, AlertChannelKind, AlertClaim, AlertDeliveryState, AlertKind, AlertTarget, EMAIL_ALERTS,
    KeyDailyUsage, QueuedAlert, StoreError, StoreRefusal,
};

use crate::fixture::{StoreFixture, TEST_TIMEOUT, open_store, pause, session_limits};
use crate::key_summaries::wait_past_midnight;

/// A plan with seven requests per day. Four fifths are 5.6, so the alert is due at six.
async fn create_small_plan_account(fixture: &StoreFixture) -> Account {
    let plan = Plan { name: "small".to_owned(), limits: Limits { daily_limit: 7, ..Limits::SPECIFIED } };
    let _exists_already = fixture.store.plans().create(&plan).await;
    let account = fixture.create_account().await;
    fixture.store.accounts().set_plan(&account, "small").await.expect("plan is set");
    account
}

async fn merge_count(fixture: &StoreFixture, key: KeyId, day: UtcDay, count: u64) {
    fixture
        .store
        .usage()
        .merge_counts(&[KeyDailyUsage { key, usage: DailyUsage { day, count } }])
        .await
        .expect("usage is merged");
}

/// The kind and day (since 1970) of all alerts.
async fn alert_rows(fixture: &StoreFixture) -> Vec<String> {
    let rows = "select kind || ' ' || day - date '1970-01-01' from alerts order by day, kind";
    fixture.sql(rows).await.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn alert_is_raised_once_near_and_at_the_daily_limit() {
    let fixture = StoreFixture::open().await;
    let today = wait_past_midnight().await;
    let account = create_small_plan_account(&fixture).await;
    let (key, large_plan_key) = (fixture.create_key_for(&account).await.id, fixture.create_key().await.id);
    let UtcDay(day) = today;
    for (count, expected) in [(5, vec![]), (6, vec![format!("near {day}")])] {
        merge_count(&fixture, key, today, count).await;
        merge_count(&fixture, large_plan_key, today, count * 1_000).await;
        assert_eq!(alert_rows(&fixture).await, expected, "{count} of 7");
    }
    for count in [7, 7, 8] {
        merge_count(&fixture, key, today, count).await;
        assert_eq!(alert_rows(&fixture).await, [format!("near {day}"), format!("spent {day}")]);
    }
    merge_count(&fixture, large_plan_key, today, 8_000).await;
    assert_eq!(fixture.sql(&format!("select kind from alerts where key_id = '{large_plan_key}'")).await, "near");
    fixture.sql("delete from alerts").await;
    merge_count(&fixture, key, today, 7).await;
    assert_eq!(alert_rows(&fixture).await, [""; 0], "an unchanged count creates no alert");

    for (other, is_raised) in [(day - 2, false), (day - 1, true), (day + 1, false)] {
        merge_count(&fixture, key, UtcDay(other), 6).await;
        assert_eq!(alert_rows(&fixture).await.contains(&format!("near {other}")), is_raised, "{other} on {day}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alert_is_raised_for_each_pause() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await.id;
    for burst_epoch in 1..=3 {
        let mut pause = pause(key, burst_epoch);
        // 2027-01-15, 08:00. The third is a day later.
        pause.at_ms += if burst_epoch == 3 { 86_400_000 } else { burst_epoch };
        fixture.store.keys().record_pause(&pause).await.expect("pause is recorded");
        fixture.store.keys().record_pause(&pause).await.expect("duplicate is ignored");
        fixture.store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    }
    assert_eq!(alert_rows(&fixture).await, ["paused 20833", "paused 20833", "paused 20834"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn near_burst_alert_is_raised_once_per_hour_on_any_number_of_nodes() {
    let fixture = StoreFixture::open().await;
    let (key, paused) = (fixture.create_key().await.id, fixture.create_key().await.id);
    let other = open_store(&fixture.postgres, TEST_TIMEOUT);
    let rows = "select count(*) from alerts where kind = 'near_burst_limit'";
    fixture.store.keys().record_pause(&pause(paused, 1)).await.expect("pause is recorded");
    for (age_min, expected) in [(0, "2"), (0, "2"), (59, "2"), (2, "4"), (0, "4")] {
        let age = format!("interval '{age_min} minutes'");
        fixture
            .sql(&format!("update alerts set created_at = created_at - {age}, burst_window = burst_window - 1"))
            .await;
        let deleted = KeyId::parse("0000000000").expect("valid id");
        let (here, there) = ([key, paused, deleted], [paused, key]);
        let (here, there) = tokio::join!(
            fixture.store.alert_queue().queue_near_burst_limit(&here),
            other.alert_queue().queue_near_burst_limit(&there)
        );
        here.and(there).expect("alerts are queued");
        assert_eq!(fixture.sql(rows).await, expected, "{age_min} minutes later");
    }
    fixture.sql(&format!("delete from notices where key_id = '{paused}'")).await;
    let alert = claim_email(&fixture).await.expect("an alert is due");
    assert_eq!((alert.kind, alert.key_id.as_str()), (AlertKind::NearBurstLimit, key.as_str()));
    assert_eq!((alert.details.burst_limit, alert.details.requests), (300, None));
}

/// The kinds that are queued for email.
async fn queued_emails(fixture: &StoreFixture) -> String {
    let sql = "select string_agg(kind, ' ' order by kind) from notices where channel_id = 0";
    fixture.sql(sql).await
}

/// Changes alerts, and the times at which their lanes are looked at.
pub async fn update_alerts(fixture: &StoreFixture, sql: &str) {
    let lanes = "update alert_lanes l set try_at = head.try_at, is_retry = head.tries > 0 from (
                     select distinct on (channel_id, key_id) * from notices
                     where mailed_at is null and failed_at is null and channel_id is not null
                     order by channel_id, key_id, id) head
                 where l.channel_id = head.channel_id and l.key_id = head.key_id";
    fixture.sql(&format!("{sql}; {lanes}")).await;
}

async fn claim_email(fixture: &StoreFixture) -> Option<QueuedAlert> {
    fixture.store.alert_queue().claim(AlertClaim::Email).await.expect("claim succeeds").pop()
}

/// Claims all due alerts of channels.
pub async fn claim_channels(fixture: &StoreFixture, count_max: usize, busy: &[(i64, usize)]) -> Vec<QueuedAlert> {
    let attempt_max = Duration::from_secs(55);
    let claim = AlertClaim::Channels {
        count_max,
        retries_max: count_max,
        per_channel_max: 8,
        per_account_max: 16,
        attempt_max,
        busy,
    };
    fixture.store.alert_queue().claim(claim).await.expect("claim succeeds")
}

pub async fn add_channel(fixture: &StoreFixture, account: &Account, alerts: &[AlertKind]) -> i64 {
    let channels = fixture.store.alert_channels();
    let created =
        channels.create(account.id, AlertChannelKind::Webhook, "https://hooks.example/", alerts, &[7; 32], 5).await;
    created.expect("channel is created")
}

/// A key, and a channel that receives its resumptions.
pub async fn key_with_channel(fixture: &StoreFixture) -> (Account, KeyId, i64) {
    let account = fixture.create_account().await;
    let key = fixture.create_key_for(&account).await.id;
    let channel = add_channel(fixture, &account, &[AlertKind::Resumed]).await;
    (account, key, channel)
}

/// Queues resumptions, which have no other rule than their order.
pub async fn queue_resumptions(fixture: &StoreFixture, key: KeyId, count: usize) {
    for _ in 0..count {
        fixture
            .sql(&format!("insert into history (key_id, at, act, actor) values ('{key}', now(), 'resumed', 'owner')"))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_chosen_alerts_are_queued() {
    let fixture = StoreFixture::open().await;
    let today = wait_past_midnight().await;
    let account = create_small_plan_account(&fixture).await;
    let key = fixture.create_key_for(&account).await.id;
    fixture.store.accounts().set_email_alerts(account.id, &[]).await.expect("choice is stored");
    let channel = add_channel(&fixture, &account, &[AlertKind::DailyLimitReached]).await;
    merge_count(&fixture, key, today, 7).await;
    fixture.store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    assert_eq!(queued_emails(&fixture).await, "");
    let claimed = claim_channels(&fixture, 10, &[]).await;
    assert_eq!(
        claimed.iter().map(|alert| (alert.channel_id, alert.kind)).collect::<Vec<_>>(),
        [(channel, AlertKind::DailyLimitReached)]
    );

    let others = fixture.create_account().await;
    assert_eq!(
        fixture.store.accounts().email_alerts(others.id).await.expect("choice is read").len(),
        5,
        "resumptions are off"
    );
    fixture.store.accounts().set_email_alerts(account.id, &EMAIL_ALERTS).await.expect("choice is stored");
    assert_eq!(fixture.store.accounts().email_alerts(account.id).await.expect("choice is read"), EMAIL_ALERTS);
    fixture.store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    assert_eq!(queued_emails(&fixture).await, "alert_resumed");
    let alert = claim_email(&fixture).await.expect("an alert is due");
    assert_eq!((alert.kind, alert.details.actor.as_deref()), (AlertKind::Resumed, Some("operator")));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_a_key_is_queued_for_a_channel() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let channel = add_channel(&fixture, &account, &AlertKind::CHOICES).await;
    let key = fixture.create_key_for(&account).await.id;
    fixture.store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    fixture.store.keys().resume(Actor::Owner(account.id), key, false).await.expect("key is resumed");
    fixture
        .sql(&format!("insert into alerts (key_id, day, kind) values ('{key}', now()::date, 'near_burst_limit')"))
        .await;
    fixture
        .sql(&format!("insert into history (key_id, at, act, actor) values ('{key}', now(), 'rolled', 'owner')"))
        .await;
    fixture.sql(&format!("update keys set expires_at = now() + interval '2 days' where id = '{key}'")).await;
    for _ in 0..2 {
        fixture.store.alert_queue().queue_expiring().await.expect("alerts are queued");
    }
    fixture.store.keys().delete(Actor::Owner(account.id), key).await.expect("key is deleted");
    let sql = format!("select string_agg(substr(kind, 7), ' ' order by id) from notices where channel_id = {channel}");
    assert_eq!(fixture.sql(&sql).await, "created paused resumed near_burst_limit rotated expiring deleted");
    let paused = "select (details ->> 'requests')::int > 0, details ->> 'burst_limit', details ->> 'name' from notices where kind = 'alert_paused' and channel_id > 0";
    assert_eq!(fixture.sql(paused).await, "t|300|a key");
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_of_a_key_arrive_in_order_and_those_of_others_do_not_wait() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let (first_key, second_key) =
        (fixture.create_key_for(&account).await.id, fixture.create_key_for(&account).await.id);
    let channel = add_channel(&fixture, &account, &[AlertKind::Resumed]).await;
    queue_resumptions(&fixture, first_key, 3).await;
    queue_resumptions(&fixture, second_key, 1).await;
    let queue = fixture.store.alert_queue();
    let claimed = claim_channels(&fixture, 10, &[]).await;
    let keys: Vec<_> = claimed.iter().map(|alert| alert.key_id.clone()).collect();
    assert_eq!(keys, [first_key.to_string(), second_key.to_string()], "one of each key");
    assert_eq!(claim_channels(&fixture, 10, &[]).await.len(), 0);
    let AlertTarget::Webhook { secrets, .. } = &claimed[0].target else { panic!("a webhook") };
    assert_eq!(secrets, &[vec![7; 32]]);

    let retry = queue.mark_attempt_failed(&claimed[0], "HTTP 503", Duration::ZERO).await.expect("outcome is stored");
    assert!(retry, "tried again for a day");
    assert_eq!(claim_channels(&fixture, 10, &[]).await.len(), 0, "the second alert waits for the first");
    update_alerts(&fixture, "update notices set try_at = now() where mailed_at is null").await;
    assert_eq!(claim_channels(&fixture, 10, &[(channel, 8)]).await.len(), 0, "the channel is busy");
    assert_eq!(claim_channels(&fixture, 0, &[]).await.len(), 0);
    let mut ids = Vec::new();
    while let Some(alert) = claim_channels(&fixture, 1, &[(channel, 7)]).await.pop() {
        queue.mark_sent(alert.id, "HTTP 200").await.expect("outcome is stored");
        if alert.key_id == first_key.as_str() {
            ids.push(alert.id);
        }
    }
    assert!(ids.len() == 3 && ids.is_sorted() && ids[0] == claimed[0].id, "{ids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_attempts_are_repeated_for_a_day() {
    let fixture = StoreFixture::open().await;
    let (_, key, _) = key_with_channel(&fixture).await;
    queue_resumptions(&fixture, key, 2).await;
    let queue = fixture.store.alert_queue();
    let delay = "select extract(epoch from try_at - clock_timestamp()) from notices where mailed_at is null and channel_id > 0 order by id limit 1";
    for (attempt, expected_s) in [(1, 1.0), (2, 2.0), (3, 4.0), (12, 2048.0), (13, 3600.0), (40, 3600.0)] {
        update_alerts(&fixture, &format!("update notices set try_at = now(), tries = {attempt} - 1")).await;
        let alert = claim_channels(&fixture, 1, &[]).await.pop().expect("an alert is due");
        let started = Instant::now();
        assert!(queue.mark_attempt_failed(&alert, "HTTP 500", Duration::ZERO).await.expect("outcome is stored"));
        let delay_s: f64 = fixture.sql(delay).await.parse().expect("number");
        let possible = expected_s - started.elapsed().as_secs_f64()..=expected_s;
        assert!(possible.contains(&delay_s), "{delay_s} s after attempt {attempt}");
    }
    update_alerts(&fixture, "update notices set try_at = now(), tries = 0").await;
    let first = claim_channels(&fixture, 1, &[]).await.pop().expect("an alert is due");
    queue.mark_attempt_failed(&first, "HTTP 429", Duration::from_secs(90)).await.expect("outcome is stored");
    let delay_s: f64 = fixture.sql(delay).await.parse().expect("number");
    assert!((80.0..=90.0).contains(&delay_s), "the receiver asked for 90 s, not {delay_s} s");

    fixture.sql(&format!("update notices set expires_at = now() where id = {}", first.id)).await;
    assert!(
        !queue.mark_attempt_failed(&first, "HTTP 500", Duration::ZERO).await.expect("outcome is stored"),
        "a day is over"
    );
    let second = claim_channels(&fixture, 1, &[]).await.pop().expect("the next alert is due");
    assert_ne!(second.id, first.id);
    assert!(!queue.mark_attempt_failed(&first, "HTTP 500", Duration::ZERO).await.expect("outcome is stored"));
    assert_eq!(claim_channels(&fixture, 1, &[]).await.len(), 0, "a late outcome does not revive an alert");
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_alerts_of_a_key_are_claimed_a_minute_apart() {
    let fixture = StoreFixture::open().await;
    let (key, other) = (fixture.create_key().await.id, fixture.create_key().await.id);
    for burst_epoch in 1..=2 {
        fixture.store.keys().record_pause(&pause(key, burst_epoch)).await.expect("pause is recorded");
        fixture.store.keys().resume(Actor::Operator, key, false).await.expect("key is resumed");
    }
    let queue = fixture.store.alert_queue();
    let claim = async || claim_email(&fixture).await.map(|alert| (alert.key_id.clone(), alert.details.burst_epoch));
    let first = claim_email(&fixture).await.expect("an alert is due");
    assert_eq!((first.key_id.as_str(), claim().await), (key.as_str(), None), "the first may be on its way");
    fixture.store.keys().record_pause(&pause(other, 1)).await.expect("pause is recorded");
    assert_eq!(claim().await, Some((other.to_string(), Some(1))), "another key does not wait");
    queue.mark_sent(first.id, "sent").await.expect("row is marked");
    assert_eq!(claim().await, None);
    let minute_passes = "update notices set mailed_at = now() - interval '1 minute' where mailed_at is not null";
    update_alerts(&fixture, minute_passes).await;
    assert_eq!(claim().await, Some((key.to_string(), Some(2))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_claimed_once_a_minute_with_the_same_content() {
    let fixture = StoreFixture::open().await;
    let today = wait_past_midnight().await;
    let account = create_small_plan_account(&fixture).await;
    let key = fixture.create_key_for(&account).await.id;
    merge_count(&fixture, key, today, 6).await;
    let first = claim_email(&fixture).await.expect("an alert is due");
    let other = open_store(&fixture.postgres, TEST_TIMEOUT);
    let claimed = other.alert_queue().claim(AlertClaim::Email).await.expect("claim succeeds");
    assert!(claimed.is_empty(), "each alert is claimed once");
    let day = fixture.sql("select (now() at time zone 'utc')::date").await;
    assert_eq!(
        (first.key_id.as_str(), first.details.name.as_str(), first.kind),
        (key.as_str(), "a key", AlertKind::NearDailyLimit)
    );
    assert_eq!((first.details.day.as_str(), first.details.used, first.details.daily_limit), (day.as_str(), 6, 7));
    assert!(matches!(&first.target, AlertTarget::Email(email) if *email == account.email));

    // The node was killed before it stored the outcome.
    update_alerts(&fixture, "update notices set try_at = try_at - interval '1 minute'").await;
    merge_count(&fixture, key, today, 6).await;
    fixture.sql(&format!("update keys set name = 'renamed' where id = '{key}'")).await;
    let again = claim_email(&fixture).await.expect("the alert is due again");
    assert_eq!((again.message_id, again.details), (first.message_id, first.details));
    assert_eq!(alert_rows(&fixture).await.len(), 1, "the alert is not created again");
}

#[tokio::test(flavor = "multi_thread")]
async fn email_goes_to_the_current_address_and_outlives_a_day_without_nodes() {
    let fixture = StoreFixture::open().await;
    let key = fixture.create_key().await.id;
    fixture.store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    fixture.sql("update accounts set email = 'restored@example.com'; update notices set expires_at = now() - interval '1 day'").await;
    fixture.store.delete_expired(session_limits(Duration::from_secs(60))).await.expect("expired rows are deleted");
    let alert = claim_email(&fixture).await.expect("the alert is due");
    assert!(matches!(&alert.target, AlertTarget::Email(email) if email == "restored@example.com"));
    fixture.sql("update notices set expires_at = now() - interval '2 days'").await;
    fixture.store.delete_expired(session_limits(Duration::from_secs(60))).await.expect("expired rows are deleted");
    assert_eq!(fixture.sql("select count(*) from notices").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn channels_belong_to_their_account() {
    let fixture = StoreFixture::open().await;
    let (account, stranger) = (fixture.create_account().await, fixture.create_account().await);
    let channels = fixture.store.alert_channels();
    let id = add_channel(&fixture, &account, &AlertKind::CHOICES).await;
    channels.queue_test(account.id, id).await.expect("a test is queued");
    let [delivery] =
        <[_; 1]>::try_from(channels.deliveries(account.id, id, 50).await.expect("log is read")).expect("one");
    let url = "https://attacker.example/";
    for refused in [
        channels.update(stranger.id, id, Some(url), Some(&[])).await,
        channels.rotate_secret(stranger.id, id, &[1; 32]).await,
        channels.queue_test(stranger.id, id).await,
        channels.redeliver(stranger.id, id, delivery.id).await,
        channels.delete(stranger.id, id).await,
    ] {
        assert!(matches!(refused, Err(StoreError::Refused(StoreRefusal::UnknownChannel))));
    }
    assert!(channels.deliveries(stranger.id, id, 50).await.expect("log is read").is_empty());
    assert!(channels.list(stranger.id, Some(id)).await.expect("list is read").is_empty());
    let kept = channels.list(account.id, Some(id)).await.expect("list is read").pop().expect("channel");
    assert_eq!((kept.url.as_str(), kept.secret, kept.pending), ("https://hooks.example/", [7; 32], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_a_limited_number_of_channels() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    let channels = fixture.store.alert_channels();
    let create = || {
        channels.create(account.id, AlertChannelKind::Slack, "https://a.example/", &[AlertKind::Paused], &[1; 32], 2)
    };
    let (first, second, third) = tokio::join!(create(), create(), create());
    let created = [first, second, third].into_iter().filter(Result::is_ok).count();
    assert_eq!((created, channels.list(account.id, None).await.expect("list is read").len()), (2, 2));
    assert!(matches!(create().await, Err(StoreError::Refused(StoreRefusal::ChannelLimitReached))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_has_the_same_id_and_the_log_shows_outcomes() {
    let fixture = StoreFixture::open().await;
    let (account, key, id) = key_with_channel(&fixture).await;
    let channels = fixture.store.alert_channels();
    queue_resumptions(&fixture, key, 1).await;
    let alert = claim_channels(&fixture, 1, &[]).await.pop().expect("an alert is due");
    fixture
        .store
        .alert_queue()
        .mark_attempt_failed(&alert, "HTTP 503", Duration::ZERO)
        .await
        .expect("outcome is stored");
    let failing = channels.list(account.id, Some(id)).await.expect("list is read").pop().expect("channel");
    assert!(failing.failing_since_s.is_some() && failing.pending == 1);
    fixture.store.alert_queue().mark_sent(alert.id, "HTTP 204").await.expect("outcome is stored");
    channels.redeliver(account.id, id, alert.id).await.expect("redelivery is queued");
    let again = claim_channels(&fixture, 1, &[]).await.pop().expect("the redelivery is due");
    assert_eq!(
        (again.message_id, &again.details, again.created_ms),
        (alert.message_id, &alert.details, alert.created_ms)
    );
    let log = channels.deliveries(account.id, id, 50).await.expect("log is read");
    assert!(
        matches!(log[0].state, AlertDeliveryState::Pending(_))
            && matches!(log[1].state, AlertDeliveryState::Delivered(_))
    );
    assert_eq!((log[1].outcome.as_deref(), log[1].attempts, log[1].key_name.as_str()), (Some("HTTP 204"), 1, "a key"));

    channels.rotate_secret(account.id, id, &[8; 32]).await.expect("secret is rotated");
    queue_resumptions(&fixture, key, 1).await;
    fixture.store.alert_queue().mark_sent(again.id, "HTTP 200").await.expect("outcome is stored");
    let next = claim_channels(&fixture, 1, &[]).await.pop().expect("an alert is due");
    assert!(matches!(&next.target, AlertTarget::Webhook { secrets, .. } if *secrets == [vec![8; 32], vec![7; 32]]));
    channels.delete(account.id, id).await.expect("channel is deleted");
    assert_eq!(fixture.sql("select count(*) from notices where channel_id > 0").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_that_cannot_be_delivered_do_not_block_others() {
    let fixture = StoreFixture::open().await;
    let (account, key, id) = key_with_channel(&fixture).await;
    let channels = fixture.store.alert_channels();
    queue_resumptions(&fixture, key, 1).await;
    // As if an event was committed while its channel was deleted.
    fixture
        .sql(&format!(
            "update notices set channel_id = {id} + 1, key_id = '' where channel_id = {id};
             update alert_lanes set channel_id = {id} + 1, key_id = '' where channel_id = {id}"
        ))
        .await;
    queue_resumptions(&fixture, key, 1).await;
    let claimed = claim_channels(&fixture, 10, &[]).await;
    assert_eq!(claimed.iter().map(|alert| alert.channel_id).collect::<Vec<_>>(), [id]);
    assert_eq!(fixture.sql("select outcome from notices where failed_at is not null").await, "the channel was deleted");

    // Emails are no deliveries of a channel.
    fixture.store.keys().record_pause(&pause(key, 1)).await.expect("pause is recorded");
    let email = claim_email(&fixture).await.expect("an alert is due");
    fixture.store.alert_queue().mark_sent(email.id, "sent").await.expect("row is marked");
    let again = channels.redeliver(account.id, 0, email.id).await;
    assert!(matches!(again, Err(StoreError::Refused(StoreRefusal::UnknownChannel))), "{again:?}");
    assert!(channels.deliveries(account.id, 0, 50).await.expect("log is read").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_leave_requests_to_alerts_that_were_not_attempted() {
    let fixture = StoreFixture::open().await;
    let account = fixture.create_account().await;
    add_channel(&fixture, &account, &[AlertKind::Resumed]).await;
    for _ in 0..4 {
        let key = fixture.create_key_for(&account).await.id;
        queue_resumptions(&fixture, key, 1).await;
    }
    let attempted =
        "update notices set tries = 1, try_at = now() - interval '1 minute' where id <> (select max(id) from notices)";
    update_alerts(&fixture, attempted).await;
    let (attempt_max, busy) = (Duration::from_secs(10), &[][..]);
    let claim = AlertClaim::Channels {
        count_max: 4,
        retries_max: 2,
        per_channel_max: 8,
        per_account_max: 16,
        attempt_max,
        busy,
    };
    let claimed = fixture.store.alert_queue().claim(claim).await.expect("claim succeeds");
    assert_eq!(claimed.iter().map(|alert| alert.attempt).collect::<Vec<_>>(), [2, 2, 1]);
}
