//! One call with many charges has the same effect as the same charges one by one.

use ipseity_domain::{ApiKey, KeyDigest, KeyFlags, KeyRecord};
use ipseity_ledger::{ChargeId, Verdict};
use ipseity_testkit::{Redis, RedisOptions};
use redis::aio::MultiplexedConnection;
use redis::cmd;

use super::calls::{RawCalls, bucket_key, redis_key};
use crate::fixture::{DAY_MS, LedgerFixture, NOON, generate_key, ledger_on, new_key};

const ROUNDS: usize = 10;
const KEYS: usize = 5;
const CALLS: usize = 25;

/// A server, and what is needed to call its script.
struct Server {
    fixture: LedgerFixture,
    connection: MultiplexedConnection,
    calls: RawCalls,
}

impl Server {
    async fn open(options: RedisOptions) -> Self {
        let redis = Redis::start(options).await.expect("Redis starts");
        let fixture = LedgerFixture { ledger: ledger_on(&redis), redis };
        let connection = fixture.connection().await;
        let calls = RawCalls::capture(&fixture.redis, &fixture.ledger).await;
        Self { fixture, connection, calls }
    }

    async fn fill(&self, key_record: &KeyRecord, key: &ApiKey) {
        let verdict = self.fixture.charge(key).await;
        let Verdict::Unknown(fence) = verdict else { panic!("record exists: {verdict:?}") };
        assert!(self.fixture.ledger.fill(key_record, &fence).await.expect("fill succeeds"));
    }

    async fn charge(&mut self, sent_ms: u64, charges: &[(ApiKey, u64, ChargeId)]) -> Vec<String> {
        let call = self.calls.charge(None, sent_ms, charges);
        let mut verdicts: Vec<String> = call.query_async(&mut self.connection).await.expect("Redis answers");
        // The fence is random.
        verdicts.iter_mut().filter(|verdict| verdict.starts_with('0')).for_each(|verdict| verdict.truncate(2));
        verdicts
    }

    /// The record without its incarnation, the log, and the pauses of its bucket.
    async fn contents(&mut self, key: &ApiKey) -> (Vec<u8>, Vec<String>, Vec<String>) {
        let mut pipe = redis::pipe();
        pipe.add_command(cmd("GETRANGE").arg(redis_key(key.id, "k")).arg(16).arg(-1).to_owned());
        pipe.lrange(redis_key(key.id, "log"), 0, -1).hgetall(bucket_key(key.id, "pending"));
        let (record, log, mut pending): (Vec<u8>, Vec<String>, Vec<String>) =
            pipe.query_async(&mut self.connection).await.expect("Redis answers");
        pending.sort_unstable();
        (record, log, pending)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_with_many_charges_equals_single_charges() {
    let (LedgerFixture { redis, .. }, clock) = LedgerFixture::at_noon().await;
    drop(redis);
    let options = RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() };
    let mut batched = Server::open(options.clone()).await;
    let mut single = Server::open(options).await;
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut now_ms, mut charged) = (NOON.0, 0);
    for round in 0..ROUNDS {
        let mut keys = Vec::new();
        for _ in 0..KEYS {
            let (key, key_record) = new_key([3, 50, 1_000][rng.usize(..3)]);
            let flags = KeyFlags { deactivated: rng.u32(..10) == 0, paused: false };
            for server in [&batched, &single] {
                server.fill(&KeyRecord { flags, ..key_record.clone() }, &key).await;
            }
            keys.push(key);
        }
        for call in 0..CALLS {
            now_ms += [0, 0, 1, 5, 300, 20_000, 59_999, 60_000][rng.usize(..8)];
            if rng.u32(..20) == 0 {
                now_ms = (now_ms / DAY_MS + 1) * DAY_MS + rng.u64(..3) - 1;
            }
            let back_ms = [0, 0, 0, 0, 0, 0, 0, 500, 1_000, 1_001, 5_000][rng.usize(..11)];
            clock.freeze_at_ms(i64::try_from(now_ms - back_ms).expect("time fits into i64"));
            let hot = keys[rng.usize(..KEYS)];
            let charges: Vec<_> = (0..[1, 2, 7, 23, 64][rng.usize(..5)])
                .map(|_| {
                    let key = match rng.u32(..100) {
                        0..70 => hot,
                        70..75 => ApiKey { digest: KeyDigest::new([7; 32]), ..hot },
                        75..78 => generate_key(),
                        _ => keys[rng.usize(..KEYS)],
                    };
                    (key, now_ms - back_ms - [0, 0, 1, 700, 4_000][rng.usize(..5)], ChargeId::next())
                })
                .collect();
            let sent_ms = now_ms - back_ms;
            let actual = batched.charge(sent_ms, &charges).await;
            let mut expected = Vec::new();
            for charge in &charges {
                expected.extend(single.charge(sent_ms, std::slice::from_ref(charge)).await);
            }
            assert_eq!(actual, expected, "call {call} of round {round}, seed {seed}");
            charged += charges.len();
        }
        for key in &keys {
            assert_eq!(batched.contents(key).await, single.contents(key).await, "round {round}, seed {seed}");
        }
    }
    assert!(charged > ROUNDS * CALLS, "{charged} charges");
}
