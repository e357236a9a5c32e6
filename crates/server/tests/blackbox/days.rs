//! Months in minutes: one clock, shared by Redis, PostgreSQL and a node, is moved from day to day. Nothing grows without bound.

use std::fs;
use std::time::Duration;

use testkit::node::Env;
use testkit::{Clock, Folder, House, HouseOptions, Issued, PostgresOptions, RedisOptions, eventually};

use crate::shared::{patient, setting};

const DAY_MS: i64 = 86_400_000;
/// As short as the settings allow, so that months go while we watch.
const KEPT_DAYS: u64 = 31;
const SESSION_DAYS: u64 = 5;
/// The longest that a part can outlive what is kept: it goes as a whole month.
const MONTH_DAYS: u64 = 31;
/// Rows of each kind that a day adds beside those of the keys.
const A_DAY: u64 = 3;
const ROUND: Duration = Duration::from_secs(30);
const KEYS_PER_ACCOUNT: u32 = 10;
/// Days between two changes of a key.
const CHANGED_EVERY: u32 = 5;
const CALLERS: usize = 8;

/// What is there after a day.
#[derive(Debug)]
struct Weight {
    day: u32,
    usage: u64,
    parts: u64,
    sessions: u64,
    links: u64,
    outbox: u64,
    history: u64,
    pauses: u64,
    database_kb: u64,
    redis_keys: u64,
    redis_kb: u64,
}

async fn house(clock: &Clock) -> House {
    let mut env: Env = patient();
    env.extend(clock.env().map(|(name, value)| (name.to_owned(), value.display().to_string())));
    for (name, value) in [
        ("RETENTION__USAGE_DAYS", KEPT_DAYS),
        ("RETENTION__HISTORY_DAYS", KEPT_DAYS),
        ("RETENTION__INTERVAL_S", 1),
        ("PORTAL__SESSION_DAYS", SESSION_DAYS),
        ("LEDGER__ROLLUP_INTERVAL_MS", 50),
    ] {
        env.insert(format!("IPSEITY__{name}"), value.to_string());
    }
    let (clock, of_redis) = (Some(clock.clone()), Some(clock.clone()));
    let options = HouseOptions {
        env,
        postgres: PostgresOptions { clock, ..PostgresOptions::default() },
        redis: RedisOptions { clock: of_redis, ..RedisOptions::default() },
        ..HouseOptions::default()
    };
    House::start(options).await.expect("a house")
}

async fn number(house: &House, sql: &str) -> u64 {
    let told = house.postgres.psql("ipseity", sql).await.expect("a number");
    told.parse().unwrap_or_else(|_| panic!("{sql}: {told}"))
}

/// Has each key ask once, on a few connections.
async fn ask_all(house: &House, keys: &[Issued]) {
    let share = keys.len().div_ceil(CALLERS).max(1);
    let asked = keys.chunks(share).map(|keys| async move {
        let mut caller = house.nodes[0].caller();
        for key in keys {
            let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("an answer");
            assert_eq!(reply.status, 200);
        }
    });
    futures_util::future::join_all(asked).await;
}

/// What people leave behind on a day: sessions, links, ceremonies, alerts, changes of a key, pauses.
async fn live(house: &House, day: u32, key: &str) {
    let left = format!(
        "insert into sessions (digest, account_id, label)
             select sha256(gen_random_uuid()::text::bytea), min(id), 'x' from accounts, generate_series(1, {A_DAY}) n group by n;
         insert into tickets (kind, email, expires_at, mailed_at)
             select 'reset', n || '@example.com', now() + interval '1 hour', now() from generate_series(1, {A_DAY}) n;
         insert into ceremonies (digest, state, expires_at)
             select sha256(gen_random_uuid()::text::bytea), '{{}}', now() + interval '5 minutes' from generate_series(1, {A_DAY});
         insert into alerts (key_id, day, kind, mailed_at)
             select id, (now() at time zone 'UTC')::date, 'near', now() from keys on conflict do nothing;
         insert into pauses (key_id, burst_window, paused_at, counts)
             select '{key}', 1000 + {day}, now(), array_fill(1::smallint, array[60]);
         insert into refusals (key_id, day, reason, count)
             select id, (now() at time zone 'UTC')::date, 'paused', 1 from keys on conflict do nothing"
    );
    house.postgres.psql("ipseity", &left).await.expect("rows");
    if day.is_multiple_of(CHANGED_EVERY) {
        for change in ["deactivate", "reactivate"] {
            house.cli(&["key", change, key]).await.expect("a command").success().expect("a change");
        }
    }
}

/// As many keys as are asked for, ten an account.
async fn issue(house: &House, count: u32) -> Vec<Issued> {
    let folder = Folder::open().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (wanted, keys) = (path("wanted.csv"), path("keys.jsonl"));
    let line = |number: u32| format!("owner{}@example.com,ip,key {number}\n", number / KEYS_PER_ACCOUNT);
    fs::write(&wanted, (0..count).map(line).collect::<String>()).expect("a file");
    let arguments = ["key", "issue-all", &wanted, "--out", &keys, "--create-accounts"];
    house.cli(&arguments).await.expect("a command").success().expect("keys");
    let written = fs::read_to_string(&keys).expect("keys");
    written.lines().map(|line| serde_json::from_str(line).expect("a key")).collect()
}

async fn weigh(house: &House, day: u32) -> Weight {
    let count = async |table: &str| number(house, &format!("select count(*) from {table}")).await;
    let info = house.redis.info("memory").await.expect("what Redis says");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("its memory");
    let keyspace = house.redis.info("keyspace").await.expect("what Redis says");
    let keys = keyspace.split("keys=").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("0");
    Weight {
        day,
        usage: count("usage").await + count("refusals").await,
        parts: count("pg_inherits i join pg_class c on c.oid = i.inhrelid where c.relkind = 'r'").await,
        sessions: count("sessions").await,
        links: count("tickets").await + count("ceremonies").await + count("alerts").await,
        outbox: count("outbox").await,
        history: count("history").await,
        pauses: count("pauses").await,
        database_kb: number(house, "select pg_database_size('ipseity') / 1024").await,
        redis_keys: keys.parse().expect("a number"),
        redis_kb: used.trim().parse::<u64>().expect("a number") / 1024,
    }
}

/// What may be there, however many days went by.
fn assert_bounded(now: &Weight, keys: u64) {
    let kept = KEPT_DAYS + MONTH_DAYS + 1;
    for (what, is, most) in [
        ("rows of usage and refusals", now.usage, 2 * keys * kept),
        // For each of two tables: what is kept, three to come, the part for others, and the one from before.
        ("parts", now.parts, 2 * (kept.div_ceil(28) + 1 + 2 + 2)),
        ("sessions", now.sessions, A_DAY * (SESSION_DAYS + 2)),
        ("links and alerts", now.links, 2 * A_DAY * 3 + keys * 6),
        ("changes that wait", now.outbox, 0),
        ("rows of history", now.history, 2 * (KEPT_DAYS + 2) + keys),
        ("pauses", now.pauses, KEPT_DAYS + 2),
        // A record and a log each, and fences of 1,024 buckets.
        ("keys in Redis", now.redis_keys, 2 * keys + 2 * 1024 + 16),
    ] {
        assert!(is <= most, "{what}: {is}, and at most {most} are allowed: {now:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the figures are the point")]
async fn nothing_grows_with_the_days() {
    let (days, count) = (setting("IPSEITY_DAYS", 100), setting("IPSEITY_DAYS_KEYS", 10));
    let clock = Clock::open().expect("a clock");
    let house = house(&clock).await;
    let keys = issue(&house, count).await;
    let today = "(now() at time zone 'UTC')::date";
    let mut weights: Vec<Weight> = Vec::new();
    for day in 1..=days {
        clock.advance_ms(DAY_MS);
        ask_all(&house, &keys).await;
        live(&house, day, &keys[0].id).await;
        let rolled = format!("select count(*) from usage where day = {today}");
        eventually("the day is rolled up", ROUND, async || number(&house, &rolled).await == u64::from(count))
            .await
            .expect("a roll-up");
        if day % 20 == 0 {
            let old = format!("select count(*) from sessions where seen_at < now() - interval '{SESSION_DAYS} days'");
            let stale = format!("select count(*) from history where at < now() - interval '{KEPT_DAYS} days'");
            let waiting = "select count(*) from outbox";
            eventually("a round of cleaning", ROUND, async || {
                number(&house, &old).await + number(&house, &stale).await + number(&house, waiting).await == 0
            })
            .await
            .expect("a round");
            weights.push(weigh(&house, day).await);
            let now = weights.last().expect("a weight");
            println!("{now:?}");
            assert_bounded(now, count.into());
        }
    }
    let last = weights.last().expect("a weight");
    assert_eq!(number(&house, "select count(*) from usage_other").await, 0, "every month was made in time");
    let oldest = number(&house, &format!("select {today} - min(day) from usage")).await;
    assert!((KEPT_DAYS - 1..=KEPT_DAYS + MONTH_DAYS).contains(&oldest), "the oldest day is {oldest} days old");
    if let Some(middle) = weights.iter().find(|weight| weight.day >= days * 3 / 5) {
        assert!(last.database_kb <= middle.database_kb * 13 / 10 + 2_000, "{middle:?}\n{last:?}");
        assert!(last.redis_kb <= middle.redis_kb * 13 / 10 + 2_000, "{middle:?}\n{last:?}");
    }
}
