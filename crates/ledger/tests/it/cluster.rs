//! A Redis cluster, and the failure of a primary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, KeyRecord};
use ipseity_ledger::{AppliedRestrictions, ChargeId, Ledger, RECONCILE_DELAY, Verdict};
use ipseity_testkit::{RedisCluster, TestClock, eventually};
use tokio::task::JoinSet;

use crate::fixture::{LedgerFixture, admitted_count, arrived_now, ledger_at, ledger_with_timeout, new_key, sweep};
use crate::pause::{expected_race_outcome, race_charges};

/// From the failure of a primary to verdicts on its keys. The cluster takes 1 s to detect it and 0.5 s to elect a new
/// primary.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
const HOUR_MS: i64 = 3_600_000;
/// Short, so that requests to a frozen server time out, but longer than a busy machine may pause a healthy one. A
/// request that waited for a frozen server would wait this long too, and fail.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// One key per primary, in the order of the primaries.
async fn key_per_primary(fixture: &LedgerFixture<RedisCluster>) -> [(ApiKey, KeyRecord); 3] {
    let mut keys = [None, None, None];
    while keys.iter().any(Option::is_none) {
        let (key, key_record) = fixture.filled_key(10_000).await;
        let (index, _) = fixture.redis.find_key(&format!("*:k:{}", key.id)).await.expect("record exists");
        keys[index] = Some((key, key_record));
    }
    keys.map(|key| key.expect("one key per primary"))
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_pauses_and_usage_are_exact_on_every_primary() {
    let fixture = LedgerFixture::cluster().await;
    fixture.ledger.ping().await.expect("every primary answers");
    let keys = key_per_primary(&fixture).await;
    let ledgers: Vec<_> = (0..3).map(|_| Arc::new(ledger_at(fixture.redis.url()))).collect();
    for (key, _) in &keys {
        assert_eq!(race_charges(&ledgers, *key).await, expected_race_outcome());
    }

    let mut claimed = sweep(&ledgers[0], Duration::from_secs(2)).await.expect("first sweep").pauses;
    claimed.sort_by_key(|pause| keys.iter().position(|(key, _)| key.id == pause.key));
    assert_eq!(claimed.iter().map(|pause| pause.key).collect::<Vec<_>>(), keys.each_ref().map(|(key, _)| key.id));
    for pause in claimed {
        assert_eq!(
            ledgers[1].unrecorded_pauses_of(pause.key).await.expect("read succeeds"),
            std::slice::from_ref(&pause)
        );
        ledgers[1].mark_pause_recorded(&pause).await.expect("pause is marked as recorded");
        assert_eq!(ledgers[1].unrecorded_pauses_of(pause.key).await.expect("read succeeds"), []);
    }

    let (unused, _) = new_key(10);
    let ids = [keys[2].0.id, unused.id, keys[0].0.id, keys[1].0.id];
    let usage = ledgers[2].usage_of(&ids).await.expect("read succeeds");
    assert_eq!(
        usage.iter().map(|used| used.map(|used| used.count)).collect::<Vec<_>>(),
        [Some(300), None, Some(300), Some(300)]
    );
    fixture.ledger.delete_key_record(keys[1].0.id).await.expect("delete succeeds");
    fixture.expect_unknown(&keys[1].0).await;
}

/// Charges a key until it is admitted, with a fill if needed. Returns how long it took.
async fn time_until_admitted(ledger: &Ledger, (key, key_record): &(ApiKey, KeyRecord)) -> Duration {
    let start = Instant::now();
    eventually("charge is admitted", Duration::from_secs(30), async || {
        match ledger.charge(key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await {
            Ok(Verdict::Unknown(fence)) => ledger.fill(key_record, &fence).await.is_ok_and(|_| false),
            Ok(verdict) => admitted_count(&verdict) > 0,
            Err(_) => false,
        }
    })
    .await
    .expect("ledger recovers");
    start.elapsed()
}

/// Stops the first primary and returns how long its key had no verdict. Keys of the other primaries always have one.
async fn fail_first_primary(
    fixture: &mut LedgerFixture<RedisCluster>,
    stop: impl FnOnce(&mut RedisCluster),
) -> Duration {
    let ledger = Arc::new(ledger_with_timeout(fixture.redis.url(), SHORT_TIMEOUT));
    let [affected, second, third] = key_per_primary(fixture).await;
    for key in [&affected, &second, &third] {
        time_until_admitted(&ledger, key).await;
    }
    stop(&mut fixture.redis);
    let mut others = JoinSet::new();
    for (key, _) in [second, third] {
        let ledger = Arc::clone(&ledger);
        others.spawn(async move {
            for _ in 0..100 {
                let verdict =
                    ledger.charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default()).await;
                assert!(matches!(verdict, Ok(Verdict::Admitted { .. })), "key of another primary: {verdict:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let took = time_until_admitted(&ledger, &affected).await;
    others.join_all().await;
    // The slot map may be refreshed now, which waits for a frozen server as long as this ledger for a reply.
    let responds = async || ledger.ping().await.is_ok();
    eventually("every primary answers", RECOVERY_TIMEOUT, responds).await.expect("every primary answers");
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn other_primaries_serve_while_a_killed_one_is_replaced() {
    let mut fixture = LedgerFixture::cluster().await;
    let took = fail_first_primary(&mut fixture, |cluster| cluster.servers[0].kill9()).await;
    assert!(took < RECOVERY_TIMEOUT, "{took:?}");
    // It restarts empty, as a replica of its former replica.
    fixture.redis.servers[0].restart().await.expect("Redis starts");
    fixture.redis.wait_until_healthy().await.expect("cluster is healthy");
    assert_new_keys_are_served(&fixture).await;
}

/// Checks new keys in random slots.
async fn assert_new_keys_are_served(fixture: &LedgerFixture<RedisCluster>) {
    for _ in 0..10 {
        let (key, _) = fixture.filled_key(10).await;
        assert_eq!(fixture.charge_admitted(&key).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_primary_is_replaced_without_an_error_reply() {
    let mut fixture = LedgerFixture::cluster().await;
    let took = fail_first_primary(&mut fixture, |cluster| cluster.servers[0].freeze()).await;
    assert!(took < RECOVERY_TIMEOUT, "{took:?}");
    fixture.redis.servers[0].thaw();
    // For a moment it still acts as the owner.
    fixture.redis.wait_until_healthy().await.expect("cluster is healthy");
    assert_new_keys_are_served(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_primary_has_its_own_clock() {
    let ahead = TestClock::open().expect("clock opens");
    ahead.set_offset_ms(2 * HOUR_MS);
    // The first primary and its replica.
    let clock = |index| (index % 3 == 0).then(|| ahead.clone());
    let cluster = RedisCluster::start_with_clocks(clock).await.expect("cluster starts");
    let mut fixture = LedgerFixture::on_cluster(cluster);
    let keys = key_per_primary(&fixture).await;
    let ledger = ledger_with_timeout(fixture.redis.url(), SHORT_TIMEOUT);
    let now = || keys.each_ref().map(|(key, _)| i64::try_from(ledger.owner_of(key.id).now().0).expect("time fits"));
    for _ in 0..3 {
        for (key, _) in &keys {
            admitted_count(
                &ledger
                    .charge(key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
                    .await
                    .expect("charge succeeds"),
            );
        }
    }
    let [first, second, third] = now();
    assert!((first - second - 2 * HOUR_MS).abs() < 500 && (second - third).abs() < 500, "{:?}", now());
    assert_eq!(ledger.clock_steps(), 0);

    // The lost charge is verified by the clock of its owner.
    let (key, id) = (keys[0].0, ChargeId::next());
    fixture.redis.servers[0].freeze();
    let failed =
        ledger.charge(&key, id, arrived_now(), AppliedRestrictions::default()).await.expect_err("server is frozen");
    fixture.redis.servers[0].thaw();
    tokio::time::sleep(RECONCILE_DELAY).await;
    let batch = fixture.unconfirmed_batch(&key, failed.sent.expect("charge was sent"), id);
    assert_eq!(fixture.reconcile(&batch).await, (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_is_discovered_from_one_server_with_its_password() {
    let fixture = LedgerFixture::cluster().await;
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(fixture.filled_key(10).await.0);
    }
    let replica = fixture.redis.servers[4].url();
    for server in &fixture.redis.servers {
        server
            .run_command(&["CONFIG", "SET", "masterauth", "secret", "requirepass", "secret"])
            .await
            .expect("password is set");
    }
    let unauthenticated = ledger_at(replica.clone());
    assert!(
        unauthenticated
            .charge(&keys[0], ChargeId::next(), arrived_now(), AppliedRestrictions::default())
            .await
            .is_err(),
        "without the password"
    );
    let ledger = ledger_at(replica.replace("redis://", "redis://:secret@"));
    for key in keys {
        assert_eq!(
            admitted_count(
                &ledger
                    .charge(&key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
                    .await
                    .expect("charge succeeds")
            ),
            1
        );
    }
}
