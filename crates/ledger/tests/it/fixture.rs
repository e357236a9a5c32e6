//! A Redis server, a ledger, and keys.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, BURST_LIMIT, KeyFlags, KeyId, KeyPause, KeyRecord, PlaintextKey, Scope, UtcDay};
use ipseity_ledger::{
    AppliedRestrictions, Arrival, ChargeId, Fence, Ledger, LedgerOptions, LedgerTime, Published, ReconcileBatch,
    Reconciled, SentCharge, Sweep, UnconfirmedCharge, Verdict,
};
use ipseity_testkit::{FaultConfig, FaultProxy, Redis, RedisCluster, RedisOptions, TestClock};
use redis::aio::MultiplexedConnection;

/// Long enough for a busy machine.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A midnight in January 2027, and its day.
pub const MIDNIGHT_MS: u64 = 1_800_000_000_000 / DAY_MS * DAY_MS;
pub const TODAY: UtcDay = UtcDay((MIDNIGHT_MS / DAY_MS) as u32);
pub const NOON: LedgerTime = LedgerTime(MIDNIGHT_MS + DAY_MS / 2);
pub const DAY_MS: u64 = 86_400_000;

pub struct LedgerFixture<S = Redis> {
    pub redis: S,
    pub ledger: Ledger,
}

impl LedgerFixture {
    pub async fn open() -> Self {
        Self::with_options(RedisOptions::default()).await
    }

    /// Starts Redis with a clock that is frozen at noon.
    pub async fn at_noon() -> (Self, TestClock) {
        let clock = TestClock::open().expect("clock opens");
        clock.freeze_at_ms(i64::try_from(NOON.0).expect("time fits into i64"));
        (Self::with_options(RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() }).await, clock)
    }

    pub async fn with_options(options: RedisOptions) -> Self {
        let redis = Redis::start(options).await.expect("Redis starts");
        let ledger = ledger_on(&redis);
        Self { redis, ledger }
    }

    /// The Redis key of an API key's record (`k`) or log (`log`).
    pub async fn redis_key(&self, kind: &str, key: &ApiKey) -> String {
        let pattern = format!("i3:*:{kind}:{}", key.id);
        let found: Vec<String> =
            redis::cmd("KEYS").arg(pattern).query_async(&mut self.connection().await).await.expect("KEYS succeeds");
        found.into_iter().next().expect("Redis key exists")
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        self.redis.connect().await.expect("Redis accepts a connection")
    }
}

impl LedgerFixture<RedisCluster> {
    pub async fn cluster() -> Self {
        Self::on_cluster(RedisCluster::start().await.expect("cluster starts"))
    }

    pub fn on_cluster(redis: RedisCluster) -> Self {
        let ledger = ledger_at(redis.url());
        Self { redis, ledger }
    }
}

impl<S> LedgerFixture<S> {
    /// Returns a key that has a record in Redis.
    pub async fn filled_key(&self, daily_limit: u64) -> (ApiKey, KeyRecord) {
        let (key, key_record) = new_key(daily_limit);
        self.fill(&key, &key_record).await;
        (key, key_record)
    }

    /// Fills the record of a key as a node does.
    pub async fn fill(&self, key: &ApiKey, key_record: &KeyRecord) {
        let fence = self.expect_unknown(key).await;
        assert!(self.ledger.fill(key_record, &fence).await.expect("fill succeeds"), "a change overtook the fill");
    }

    pub async fn charge(&self, key: &ApiKey) -> Verdict {
        self.ledger
            .charge(key, ChargeId::next(), arrived_now(), AppliedRestrictions::default())
            .await
            .expect("charge succeeds")
    }

    pub async fn expect_unknown(&self, key: &ApiKey) -> Fence {
        let verdict = self.charge(key).await;
        let Verdict::Unknown(fence) = verdict else { panic!("record exists: {verdict:?}") };
        fence
    }

    pub async fn charge_admitted(&self, key: &ApiKey) -> u64 {
        admitted_count(&self.charge(key).await)
    }

    /// Charges until the key is paused.
    pub async fn charge_until_paused(&self, key: &ApiKey) -> KeyPause {
        for _ in 0..BURST_LIMIT {
            let verdict = self.charge(key).await;
            if matches!(verdict, Verdict::PausedNow { .. }) {
                return self.pause_of(key, &verdict).await;
            }
        }
        self.charge_pausing(key).await
    }

    /// Charges a key that this request pauses. Returns the pause with its evidence.
    pub async fn charge_pausing(&self, key: &ApiKey) -> KeyPause {
        let verdict = self.charge(key).await;
        self.pause_of(key, &verdict).await
    }

    async fn pause_of(&self, key: &ApiKey, verdict: &Verdict) -> KeyPause {
        let Verdict::PausedNow { now, burst_epoch, .. } = *verdict else { panic!("not paused: {verdict:?}") };
        self.ledger.pause_evidence(key.id, burst_epoch, now.0).await.expect("log is read")
    }

    /// A batch with one unconfirmed charge, which the node admitted.
    pub fn unconfirmed_batch(&self, key: &ApiKey, sent: SentCharge, id: ChargeId) -> ReconcileBatch {
        let unconfirmed = vec![UnconfirmedCharge { sent, id, is_admitted: true }];
        ReconcileBatch { unconfirmed, ..empty_batch(key) }
    }

    /// Reconciles a batch. Returns today's count and the number of unverifiable charges.
    pub async fn reconcile(&self, batch: &ReconcileBatch) -> (u64, u64) {
        let reconciled = self.ledger.reconcile(batch).await.expect("Redis answers");
        let Reconciled::Done { quota, unverifiable } = reconciled else { panic!("not reconciled: {reconciled:?}") };
        (quota.used, unverifiable)
    }

    /// Publishes a change that no newer one has overtaken.
    pub async fn publish(&self, key_record: &KeyRecord) {
        assert_eq!(self.ledger.publish(key_record).await.expect("publish succeeds"), Published::Applied);
    }
}

/// The ledger of another node on the same server.
pub fn ledger_on(redis: &Redis) -> Ledger {
    ledger_at(redis.url())
}

pub fn ledger_at(url: String) -> Ledger {
    ledger_with_timeout(url, REQUEST_TIMEOUT)
}

pub fn ledger_with_timeout(url: String, timeout: Duration) -> Ledger {
    // Many tests freeze the clock, which then looks as if it were set back all the time.
    let options = LedgerOptions { clock_fall_max: Duration::ZERO, ..LedgerOptions::new(url, timeout) };
    Ledger::new(&options).expect("valid URL")
}

/// The arrival of a request that is charged immediately.
pub fn arrived_now() -> Arrival {
    Arrival::Here(Instant::now())
}

/// A charge to this server whose reply was lost, as if its request arrived and it was sent at `at`. The charge is of a key without a record.
pub async fn lost_charge(redis: &Redis, at: LedgerTime) -> SentCharge {
    let proxy = FaultProxy::open(redis.address()).expect("proxy starts");
    let ledger = ledger_with_timeout(format!("redis://{}", proxy.address()), Duration::from_secs(1));
    ledger.ping().await.expect("Redis answers");
    proxy.set_faults(FaultConfig { half_open: true, ..FaultConfig::none() });
    let error = ledger
        .charge(&generate_key(), ChargeId::next(), arrived_now(), AppliedRestrictions::default())
        .await
        .expect_err("reply is lost");
    let mut sent = error.sent.expect("charge was sent");
    (sent.at, sent.arrival) = (at, at);
    sent
}

/// Waits until the replica is in sync, so that a promotion loses no data.
pub async fn wait_for_replica(primary: &Redis) {
    let mut connection = primary.connect().await.expect("Redis accepts a connection");
    // WAIT waits for writes of the same connection. This write comes after all others.
    let (acknowledged,): (u32,) = redis::pipe()
        .cmd("SET")
        .arg("sync marker")
        .arg(1)
        .ignore()
        .cmd("WAIT")
        .arg(1)
        .arg(10_000)
        .query_async(&mut connection)
        .await
        .expect("Redis answers");
    assert_eq!(acknowledged, 1);
}

/// Sweeps all servers. Returns one result if no other node did so within `interval`.
pub async fn sweep(ledger: &Ledger, interval: Duration) -> Option<Sweep> {
    let mut found = None;
    for owner in ledger.owners() {
        for part in ledger.claim_sweep(&owner, interval).await.expect("Redis answers").into_iter().flatten() {
            let sweep = ledger.sweep(&part).await.expect("Redis answers");
            let all = found.get_or_insert_with(Sweep::default);
            all.usage.extend(sweep.usage);
            all.near_burst_limit.extend(sweep.near_burst_limit);
            all.pauses.extend(sweep.pauses);
            // A slot that has moved meanwhile can be swept twice.
            all.pauses.dedup();
        }
    }
    found
}

/// Sweeps all servers, without waiting for the interval. Returns key, day and count, sorted.
pub async fn swept_usage(fixture: &LedgerFixture) -> Vec<(KeyId, u32, u64)> {
    let owner = fixture.ledger.owners().remove(0);
    let swept = fixture.ledger.sweep(&fixture.ledger.all_parts(&owner)).await.expect("Redis answers");
    let counts = swept.usage.iter().flat_map(|usage| usage.days.iter().map(|day| (usage.key, day.day.0, day.count)));
    let mut counts: Vec<_> = counts.collect();
    counts.sort_unstable();
    counts
}

pub fn generate_key() -> ApiKey {
    PlaintextKey::generate(|| fastrand::u8(..)).to_api_key()
}

/// A batch without requests, with a higher number than all before it.
pub fn empty_batch(key: &ApiKey) -> ReconcileBatch {
    static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
    ReconcileBatch {
        key: key.id,
        number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1,
        burst_epoch: 1,
        days: Vec::new(),
        recent: Vec::new(),
        unconfirmed: Vec::new(),
        pause: None,
        first_attempt: None,
    }
}

/// A new key and its record.
pub fn new_key(daily_limit: u64) -> (ApiKey, KeyRecord) {
    let key = generate_key();
    let flags = KeyFlags { deactivated: false, paused: false };
    let ApiKey { id, digest } = key;
    let key_record = KeyRecord {
        id,
        digest,
        previous: None,
        scope: Scope::Full,
        daily_limit,
        burst_limit: BURST_LIMIT,
        restrictions: None,
        flags,
        generation: 1,
        burst_epoch: 1,
        usage: None,
        previous_usage: None,
    };
    (key, key_record)
}

/// The number of used requests after an admitted request.
pub fn admitted_count(verdict: &Verdict) -> u64 {
    let Verdict::Admitted { quota, .. } = verdict else { panic!("not admitted: {verdict:?}") };
    quota.used
}
