//! Slots: which remote nodes may admit requests of a key before they are charged, and the notice when they may not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, BURST_LIMIT, IN_FLIGHT_MAX, KeyRecord, PreviousDigest};
use ipseity_ledger::{
    AppliedRestrictions, Arrival, ChargeId, Ledger, REMOTE_SLOTS, ReconcileBatch, RemoteSlot, SlotFeed, SlotNotice,
    Verdict,
};
use ipseity_testkit::{RedisOptions, TestClock};
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;

use crate::fixture::{LedgerFixture, empty_batch, generate_key, ledger_at, new_key};

const WITHIN: Duration = Duration::from_secs(20);

/// Charges a request of the remote node with this slot. Returns whether the slot is open.
async fn charge_from<S>(fixture: &LedgerFixture<S>, key: &ApiKey, slot: u8) -> bool {
    let now = fixture.ledger.owner_of(key.id).now();
    let arrival = Arrival::AtRemoteNode { arrival: now, sent_at: now, slot: RemoteSlot::from_number(slot) };
    let verdict = fixture
        .ledger
        .charge(key, ChargeId::next(), arrival, AppliedRestrictions::default())
        .await
        .expect("charge succeeds");
    let Verdict::Admitted { is_open, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    is_open
}

/// A feed that is complete, and its later notices.
async fn follow(ledger: Ledger) -> (tokio::task::JoinHandle<()>, Receiver<SlotNotice>) {
    let feed = Arc::new(SlotFeed::new(Arc::new(ledger)));
    let mut notices = feed.subscribe();
    let running = tokio::spawn(async move { feed.run().await });
    timeout(WITHIN, async { while !matches!(notices.recv().await, Ok(SlotNotice::CompleteUntil(_))) {} })
        .await
        .expect("feed is complete");
    (running, notices)
}

/// The keys that were closed until now.
async fn closed_keys(notices: &mut Receiver<SlotNotice>) -> Vec<SlotNotice> {
    let (start, mut closed) = (Instant::now(), Vec::new());
    loop {
        match timeout(WITHIN, notices.recv()).await.expect("feed continues").expect("feed is running") {
            SlotNotice::CompleteUntil(instant) if instant > start => return closed,
            SlotNotice::CompleteUntil(_) => {}
            notice @ (SlotNotice::Closed(_) | SlotNotice::Missed) => closed.push(notice),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_open_until_the_burst_limit_is_near() {
    let clock = TestClock::open().expect("clock opens");
    clock.set_offset_ms(0);
    let fixture =
        LedgerFixture::with_options(RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() }).await;
    let (_feed, mut notices) = follow(ledger_at(fixture.redis.url())).await;
    for nodes in [1, 5, REMOTE_SLOTS] {
        let (key, _) = fixture.filled_key(10_000).await;
        closed_keys(&mut notices).await;
        let mut requests = 0;
        for slot in 0..nodes {
            assert!(charge_from(&fixture, &key, slot).await, "slot {slot}");
            requests += 1;
        }
        assert_eq!(closed_keys(&mut notices).await, []);
        while charge_from(&fixture, &key, 0).await {
            requests += 1;
        }
        requests += 1;
        let reserve = IN_FLIGHT_MAX * usize::from(nodes) + 8;
        assert_eq!(requests, BURST_LIMIT - reserve, "{nodes} nodes");
        assert_eq!(closed_keys(&mut notices).await, [SlotNotice::Closed(key.id)], "once, for all slots");
        for slot in 0..nodes {
            assert!(!charge_from(&fixture, &key, slot).await, "slot {slot} of {nodes}");
        }
        assert_eq!(closed_keys(&mut notices).await, [], "they were closed before");
        clock.advance_ms(61_100);
        // The first charge meets the old estimate of the clock.
        let _ = fixture.charge(&generate_key()).await;
        assert!(charge_from(&fixture, &key, 0).await, "the window has passed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_at_home_close_the_slots_too() {
    let fixture = LedgerFixture::open().await;
    let (_feed, mut notices) = follow(ledger_at(fixture.redis.url())).await;
    let (key, _) = fixture.filled_key(10_000).await;
    closed_keys(&mut notices).await;
    assert!(charge_from(&fixture, &key, 7).await);
    for _ in 0..BURST_LIMIT - IN_FLIGHT_MAX - 8 - 2 {
        fixture.charge_admitted(&key).await;
    }
    assert_eq!(closed_keys(&mut notices).await, []);
    fixture.charge_admitted(&key).await;
    assert_eq!(closed_keys(&mut notices).await, [SlotNotice::Closed(key.id)]);
    fixture.charge_until_paused(&key).await;
    assert_eq!(closed_keys(&mut notices).await, [], "a pause of a closed key is no change for remote nodes");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_open_until_the_daily_limit_is_near() {
    let fixture = LedgerFixture::open().await;
    let (_feed, mut notices) = follow(ledger_at(fixture.redis.url())).await;
    let (key, _) = fixture.filled_key(50).await;
    closed_keys(&mut notices).await;
    for used in 1..=50 {
        let is_open = charge_from(&fixture, &key, 0).await;
        assert_eq!(is_open, used + IN_FLIGHT_MAX + 8 <= 50, "{used}");
    }
    assert_eq!(closed_keys(&mut notices).await, [SlotNotice::Closed(key.id)]);
    // Too small for any request in flight.
    let (small, _) = fixture.filled_key(12).await;
    assert!(!charge_from(&fixture, &small, 0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_key_is_reported() {
    let fixture = LedgerFixture::open().await;
    let (_feed, mut notices) = follow(ledger_at(fixture.redis.url())).await;
    let (key, key_record) = fixture.filled_key(10_000).await;
    assert!(charge_from(&fixture, &key, 3).await);
    fixture.publish(&KeyRecord { generation: 2, daily_limit: 9_999, ..key_record.clone() }).await;
    assert_eq!(closed_keys(&mut notices).await.first(), Some(&SlotNotice::Closed(key.id)), "changed");

    assert!(charge_from(&fixture, &key, 3).await);
    fixture.ledger.invalidate_key_record(key.id).await.expect("Redis answers");
    assert_eq!(closed_keys(&mut notices).await, [SlotNotice::Closed(key.id)], "invalidated");

    let key_record = KeyRecord { generation: 3, ..key_record };
    fixture.fill(&key, &key_record).await;
    assert!(charge_from(&fixture, &key, 3).await);
    closed_keys(&mut notices).await;
    fixture
        .reconcile(&ReconcileBatch {
            days: vec![(fixture.ledger.owner_of(key.id).now().day(), 5)],
            ..empty_batch(&key)
        })
        .await;
    assert_eq!(closed_keys(&mut notices).await, [SlotNotice::Closed(key.id)], "reconciled");

    // A record expires, and remote nodes do not forget.
    let delete = async || {
        let record_key = fixture.redis_key("k", &key).await;
        redis::cmd("DEL").arg(record_key).exec_async(&mut fixture.connection().await).await.expect("record is deleted");
    };
    delete().await;
    fixture.fill(&key, &key_record).await;
    assert_eq!(closed_keys(&mut notices).await, [SlotNotice::Closed(key.id)], "filled without a record");
    delete().await;
    fixture.publish(&KeyRecord { generation: 4, ..key_record }).await;
    assert_eq!(closed_keys(&mut notices).await, [SlotNotice::Closed(key.id)], "changed without a record");
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_before_a_rotation_is_never_open() {
    let fixture = LedgerFixture::open().await;
    let (key, key_record) = new_key(10_000);
    let old = ApiKey { digest: generate_key().digest, ..key };
    let expires_at_s = 9_000_000_000;
    fixture
        .fill(&key, &KeyRecord { previous: Some(PreviousDigest { digest: old.digest, expires_at_s }), ..key_record })
        .await;
    assert!(!charge_from(&fixture, &old, 0).await);
    assert!(charge_from(&fixture, &key, 0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_without_the_right_to_publish_is_never_complete() {
    let fixture = LedgerFixture::open().await;
    let mut connection = fixture.connection().await;
    for (user, channels) in [("silent", "resetchannels"), ("usual", "allchannels")] {
        redis::cmd("ACL")
            .arg(&["SETUSER", user, "on", ">secret", "allkeys", "+@all", channels])
            .exec_async(&mut connection)
            .await
            .expect("user is created");
    }
    let url = |user: &str| fixture.redis.url().replace("redis://", &format!("redis://{user}:secret@"));
    let silent = LedgerFixture { ledger: ledger_at(url("silent")), redis: () };
    // Charges work, and changes too.
    let (key, key_record) = silent.filled_key(10_000).await;
    assert!(charge_from(&silent, &key, 0).await);
    silent.publish(&KeyRecord { generation: 2, ..key_record }).await;
    silent.charge_until_paused(&key).await;
    let feed = Arc::new(SlotFeed::new(Arc::new(silent.ledger)));
    let mut notices = feed.subscribe();
    let running = tokio::spawn(async move { feed.run().await });
    assert!(timeout(Duration::from_secs(1), notices.recv()).await.is_err(), "a feed without rights reports nothing");
    running.abort();
    follow(ledger_at(url("usual"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_of_the_feed_is_reported() {
    let fixture = LedgerFixture::open().await;
    let (_feed, mut notices) = follow(ledger_at(fixture.redis.url())).await;
    redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "pubsub"])
        .exec_async(&mut fixture.connection().await)
        .await
        .expect("connections are closed");
    let reported = closed_keys(&mut notices).await;
    assert!(!reported.is_empty() && reported.iter().all(|notice| *notice == SlotNotice::Missed), "{reported:?}");
    assert_eq!(closed_keys(&mut notices).await, [], "it is followed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_keys_of_all_servers_of_a_cluster_are_reported() {
    let fixture = LedgerFixture::cluster().await;
    let (_feed, mut notices) = follow(ledger_at(fixture.redis.url())).await;
    for _ in 0..10 {
        let (key, key_record) = fixture.filled_key(10_000).await;
        assert!(charge_from(&fixture, &key, 0).await);
        fixture.publish(&KeyRecord { generation: 2, ..key_record }).await;
        let reported = closed_keys(&mut notices).await;
        assert!(
            !reported.is_empty() && reported.iter().all(|notice| *notice == SlotNotice::Closed(key.id)),
            "{reported:?}"
        );
    }
}
