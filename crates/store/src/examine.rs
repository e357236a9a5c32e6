//! What PostgreSQL says of itself and of the schema, for whoever looks after it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sqlx::{ConnectOptions, FromRow, PgConnection};

use crate::error::StoreError;
use crate::pool::{SCHEMA, Store};

/// Questions for the time: the quickest answer tells the distance and the clock best.
const QUESTIONS: usize = 5;

/// How PostgreSQL is.
#[derive(Clone, Debug, Default)]
pub struct Vitals {
    /// Its version, such as `15.8`.
    pub version: String,
    /// The same as a number, such as 150008.
    pub version_number: i32,
    /// Whether it is a replica, or was told to take no writes.
    pub is_read_only: bool,
    /// What the database's text is written in, such as `UTF8`.
    pub encoding: String,
    /// Whether a commit waits for the disk.
    pub waits_for_disk: bool,
    /// Connections that it takes.
    pub connections_max: i32,
    /// Whether this role may read and write every table.
    pub may_write: bool,
    /// Changes of the schema that this version knows.
    pub known: usize,
    /// Those of them that are still to be made.
    pub missing: Vec<i64>,
    /// Those of them that were begun and failed, or were made by another text.
    pub broken: Vec<i64>,
    /// Changes that a newer version made.
    pub unknown: Vec<i64>,
    /// Milliseconds that its clock is ahead of this machine's.
    pub ahead_ms: i64,
    /// Time for a question and its answer.
    pub round_trip: Duration,
}

#[derive(FromRow)]
struct Told {
    version: String,
    version_number: i32,
    is_read_only: bool,
    encoding: String,
    waits_for_disk: bool,
    connections_max: i32,
    has_schema: bool,
    may_write: bool,
}

#[derive(FromRow)]
struct Made {
    version: i64,
    checksum: Vec<u8>,
    success: bool,
}

impl Store {
    /// Asks PostgreSQL how it is, over a connection of its own: a pool would go on trying instead of telling why it fails.
    ///
    /// # Errors
    /// When it does not answer in time, or does not let anybody in.
    pub async fn examine(&self) -> Result<Vitals, StoreError> {
        let examined = async {
            let mut connection = self.pool.connect_options().connect().await?;
            examine(&mut connection).await
        };
        self.within(examined).await
    }
}

async fn examine(connection: &mut PgConnection) -> Result<Vitals, sqlx::Error> {
    let told: Told = sqlx::query_as(
        "select split_part(current_setting('server_version'), ' ', 1) as version,
                current_setting('server_version_num')::int as version_number,
                pg_is_in_recovery() or current_setting('transaction_read_only')::boolean as is_read_only,
                current_setting('server_encoding') as encoding,
                current_setting('fsync')::boolean as waits_for_disk,
                current_setting('max_connections')::int as connections_max,
                to_regclass('_sqlx_migrations') is not null as has_schema,
                coalesce((select bool_and(has_table_privilege(c.oid, p.privilege))
                          from pg_class c cross join unnest(array['select', 'insert', 'update', 'delete']) p (privilege)
                          where c.relkind in ('r', 'p') and not c.relispartition and c.relname <> '_sqlx_migrations'
                              and c.relnamespace = (select relnamespace from pg_class where oid = to_regclass('keys'))
                         ), true) as may_write",
    )
    .fetch_one(&mut *connection)
    .await?;
    let made: Vec<Made> = if told.has_schema {
        let all = sqlx::query_as("select version, checksum, success from _sqlx_migrations order by version");
        all.fetch_all(&mut *connection).await?
    } else {
        Vec::new()
    };
    let (ahead_ms, round_trip) = read_clock(connection).await?;
    let find = |version: i64| made.iter().find(|made| made.version == version);
    let is_broken =
        |version: i64, checksum: &[u8]| find(version).is_some_and(|made| !made.success || made.checksum != checksum);
    Ok(Vitals {
        version: told.version,
        version_number: told.version_number,
        is_read_only: told.is_read_only,
        encoding: told.encoding,
        waits_for_disk: told.waits_for_disk,
        connections_max: told.connections_max,
        may_write: told.may_write,
        known: SCHEMA.iter().count(),
        missing: SCHEMA.iter().map(|change| change.version).filter(|version| find(*version).is_none()).collect(),
        broken: SCHEMA
            .iter()
            .filter(|change| is_broken(change.version, &change.checksum))
            .map(|change| change.version)
            .collect(),
        unknown: made.iter().map(|made| made.version).filter(|version| !SCHEMA.version_exists(*version)).collect(),
        ahead_ms,
        round_trip,
    })
}

async fn read_clock(connection: &mut PgConnection) -> Result<(i64, Duration), sqlx::Error> {
    let (mut ahead_ms, mut quickest) = (0, Duration::MAX);
    for _ in 0..QUESTIONS {
        let (sent, asked_ms) = (Instant::now(), now_ms());
        let time = sqlx::query_scalar("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint");
        let time_ms: i64 = time.fetch_one(&mut *connection).await?;
        let round_trip = sent.elapsed();
        if round_trip < quickest {
            let half_ms = i64::try_from(round_trip.as_millis() / 2).unwrap_or_default();
            (ahead_ms, quickest) = (time_ms - asked_ms - half_ms, round_trip);
        }
    }
    Ok((ahead_ms, quickest))
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
