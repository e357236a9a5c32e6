//! Storage stays bounded over months: Redis, PostgreSQL and a node share a clock that the test advances day by day.

use std::fs;
use std::time::Duration;

use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{
    Deployment, DeploymentOptions, IssuedKey, PostgresOptions, RedisOptions, TestClock, TestDir, eventually,
};

use crate::fixture::{env_number, relaxed_timeouts};

const DAY_MS: i64 = 86_400_000;
/// The minimum, so that the test sees months expire.
const RETENTION_DAYS: u64 = 31;
const HOURLY_RETENTION_DAYS: u64 = 30;
const SESSION_IDLE_DAYS: u64 = 5;
/// Partitions are dropped as whole months, so the oldest rows may be this much older.
const MONTH_DAYS: u64 = 31;
/// Rows of each kind added per day, apart from those of the keys.
const ROWS_PER_DAY: u64 = 3;
const RETENTION_TIMEOUT: Duration = Duration::from_secs(30);
const KEYS_PER_ACCOUNT: u32 = 10;
const CHANGE_INTERVAL_DAYS: u32 = 5;
const CONNECTIONS: usize = 8;

/// Row counts and sizes after a day.
#[derive(Debug)]
struct StorageUsage {
    day: u32,
    usage: u64,
    hours: u64,
    partitions: u64,
    sessions: u64,
    tokens_and_alerts: u64,
    outbox: u64,
    history: u64,
    pauses: u64,
    database_kb: u64,
    redis_keys: u64,
    redis_kb: u64,
}

async fn start_deployment(clock: &TestClock) -> Deployment {
    let mut env: Env = relaxed_timeouts();
    env.extend(clock.env().map(|(name, value)| (name.to_owned(), value.display().to_string())));
    for (name, value) in [
        ("RETENTION__USAGE_DAYS", RETENTION_DAYS),
        ("RETENTION__HOURLY_USAGE_DAYS", HOURLY_RETENTION_DAYS),
        ("RETENTION__HISTORY_DAYS", RETENTION_DAYS),
        ("RETENTION__INTERVAL_S", 1),
        ("PORTAL__SESSION_IDLE_DAYS", SESSION_IDLE_DAYS),
        ("LEDGER__USAGE_FLUSH_INTERVAL_MS", 50),
    ] {
        env.insert(format!("IPSEITY__{name}"), value.to_string());
    }
    let (clock, redis_clock) = (Some(clock.clone()), Some(clock.clone()));
    let options = DeploymentOptions {
        env,
        postgres: PostgresOptions { clock, ..PostgresOptions::default() },
        redis: RedisOptions { clock: redis_clock, ..RedisOptions::default() },
        ..DeploymentOptions::default()
    };
    Deployment::start(options).await.expect("start deployment")
}

async fn query_number(deployment: &Deployment, sql: &str) -> u64 {
    let output = deployment.postgres.psql("ipseity", sql).await.expect("run SQL");
    output.parse().unwrap_or_else(|_| panic!("{sql}: {output}"))
}

/// Sends a lookup with each key, on a few connections.
async fn lookup_with_all(deployment: &Deployment, keys: &[IssuedKey]) {
    let chunk_size = keys.len().div_ceil(CONNECTIONS).max(1);
    let lookups = keys.chunks(chunk_size).map(|keys| async move {
        let mut caller = deployment.nodes[0].client();
        for key in keys {
            let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response");
            assert_eq!(reply.status, 200);
        }
    });
    futures_util::future::join_all(lookups).await;
}

/// Adds the rows of a day: sessions, links, WebAuthn states, alerts, key changes and pauses.
async fn add_daily_rows(deployment: &Deployment, day: u32, key: &str) {
    let insert_sql = format!(
        "insert into sessions (digest, account_id, label)
             select sha256(gen_random_uuid()::text::bytea), min(id), 'x' from accounts, generate_series(1, {ROWS_PER_DAY}) n group by n;
         insert into tickets (kind, email, expires_at, mailed_at)
             select 'reset', n || '@example.com', now() + interval '1 hour', now() from generate_series(1, {ROWS_PER_DAY}) n;
         insert into ceremonies (digest, state, expires_at)
             select sha256(gen_random_uuid()::text::bytea), '{{}}', now() + interval '5 minutes' from generate_series(1, {ROWS_PER_DAY});
         insert into alerts (key_id, day, kind, mailed_at)
             select id, (now() at time zone 'UTC')::date, 'near', now() from keys on conflict do nothing;
         insert into pauses (key_id, burst_window, paused_at, counts)
             select '{key}', 1000 + {day}, now(), array_fill(1::smallint, array[60]);
         insert into refusals (key_id, day, reason, count)
             select id, (now() at time zone 'UTC')::date, 'paused', 1 from keys on conflict do nothing;
         insert into usage_hours (key_id, day, outcome, starts)
             select id, (now() at time zone 'UTC')::date, 'paused', '[9:9]={{0}}' from keys on conflict do nothing"
    );
    deployment.postgres.psql("ipseity", &insert_sql).await.expect("run SQL");
    if day.is_multiple_of(CHANGE_INTERVAL_DAYS) {
        for change in ["deactivate", "reactivate"] {
            deployment
                .cli(&["key", change, key])
                .await
                .expect("run command")
                .ensure_success()
                .expect("command succeeds");
        }
    }
}

/// Issues keys, ten per account.
async fn issue_keys(deployment: &Deployment, count: u32) -> Vec<IssuedKey> {
    let folder = TestDir::create().expect("create directory");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (input, keys) = (path("wanted.csv"), path("keys.jsonl"));
    let line = |number: u32| format!("owner{}@example.com,ip,key {number}\n", number / KEYS_PER_ACCOUNT);
    fs::write(&input, (0..count).map(line).collect::<String>()).expect("write file");
    let arguments = ["key", "issue", "--from", &input, "--out", &keys, "--create-accounts"];
    deployment.cli(&arguments).await.expect("run command").ensure_success().expect("command succeeds");
    let written = fs::read_to_string(&keys).expect("read file");
    written.lines().map(|line| serde_json::from_str(line).expect("valid JSON")).collect()
}

async fn measure_storage(deployment: &Deployment, day: u32) -> StorageUsage {
    let count = async |table: &str| query_number(deployment, &format!("select count(*) from {table}")).await;
    let info = deployment.redis.info("memory").await.expect("read INFO");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("memory");
    let keyspace = deployment.redis.info("keyspace").await.expect("read INFO");
    let keys = keyspace.split("keys=").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("0");
    StorageUsage {
        day,
        usage: count("usage").await + count("refusals").await,
        hours: count("usage_hours").await,
        partitions: count("pg_inherits i join pg_class c on c.oid = i.inhrelid where c.relkind = 'r'").await,
        sessions: count("sessions").await,
        tokens_and_alerts: count("tickets").await + count("ceremonies").await + count("alerts").await,
        outbox: count("outbox").await,
        history: count("history").await,
        pauses: count("pauses").await,
        database_kb: query_number(deployment, "select pg_database_size('ipseity') / 1024").await,
        redis_keys: keys.parse().expect("number"),
        redis_kb: used.trim().parse::<u64>().expect("number") / 1024,
    }
}

/// Asserts limits that do not depend on the number of days.
fn assert_storage_bounded(now: &StorageUsage, keys: u64) {
    let kept_days = RETENTION_DAYS + MONTH_DAYS + 1;
    for (what, count, count_max) in [
        ("usage and refusal rows", now.usage, 2 * keys * kept_days),
        // Two tables: kept months, the current and two future ones, the default partition, and the one from before partitioning.
        // Today and the days of the retention, for admitted requests and one reason.
        ("rows of hours", now.hours, 2 * keys * (HOURLY_RETENTION_DAYS + 2)),
        ("partitions", now.partitions, 2 * (kept_days.div_ceil(28) + 1 + 2 + 2)),
        ("sessions", now.sessions, ROWS_PER_DAY * (SESSION_IDLE_DAYS + 2)),
        ("links and alerts", now.tokens_and_alerts, 2 * ROWS_PER_DAY * 3 + keys * 6),
        ("outbox rows", now.outbox, 0),
        ("history rows", now.history, 2 * (RETENTION_DAYS + 2) + keys),
        ("pauses", now.pauses, RETENTION_DAYS + 2),
        // A record and a log per key, and fences of 1,024 buckets.
        ("keys in Redis", now.redis_keys, 2 * keys + 2 * 1024 + 16),
    ] {
        assert!(count <= count_max, "{what}: {count}, more than {count_max}: {now:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "prints the figures for review")]
async fn storage_does_not_grow_over_time() {
    let (days, count) = (env_number("IPSEITY_DAYS", 100), env_number("IPSEITY_DAYS_KEYS", 10));
    let clock = TestClock::open().expect("open clock");
    let deployment = start_deployment(&clock).await;
    let keys = issue_keys(&deployment, count).await;
    let today = "(now() at time zone 'UTC')::date";
    let mut samples: Vec<StorageUsage> = Vec::new();
    for day in 1..=days {
        clock.advance_ms(DAY_MS);
        lookup_with_all(&deployment, &keys).await;
        add_daily_rows(&deployment, day, &keys[0].id).await;
        let flushed_query = format!("select count(*) from usage where day = {today}");
        eventually("usage is flushed", RETENTION_TIMEOUT, async || {
            query_number(&deployment, &flushed_query).await == u64::from(count)
        })
        .await
        .expect("happens in time");
        if day % 20 == 0 {
            let old =
                format!("select count(*) from sessions where seen_at < now() - interval '{SESSION_IDLE_DAYS} days'");
            let stale = format!("select count(*) from history where at < now() - interval '{RETENTION_DAYS} days'");
            let old_hours = format!("select count(*) from usage_hours where day < {today} - {HOURLY_RETENTION_DAYS}");
            let waiting = "select count(*) from outbox";
            eventually("a retention run", RETENTION_TIMEOUT, async || {
                query_number(&deployment, &old).await
                    + query_number(&deployment, &stale).await
                    + query_number(&deployment, &old_hours).await
                    + query_number(&deployment, waiting).await
                    == 0
            })
            .await
            .expect("happens in time");
            samples.push(measure_storage(&deployment, day).await);
            let now = samples.last().expect("sample");
            println!("{now:?}");
            assert_storage_bounded(now, count.into());
        }
    }
    let last = samples.last().expect("sample");
    assert_eq!(
        query_number(&deployment, "select count(*) from usage_other").await,
        0,
        "partitions were created in time"
    );
    let oldest = query_number(&deployment, &format!("select {today} - min(day) from usage")).await;
    assert!(
        (RETENTION_DAYS - 1..=RETENTION_DAYS + MONTH_DAYS).contains(&oldest),
        "the oldest day is {oldest} days old"
    );
    if let Some(middle) = samples.iter().find(|sample| sample.day >= days * 3 / 5) {
        assert!(last.database_kb <= middle.database_kb * 13 / 10 + 2_000, "{middle:?}\n{last:?}");
        assert!(last.redis_kb <= middle.redis_kb * 13 / 10 + 2_000, "{middle:?}\n{last:?}");
    }
}
