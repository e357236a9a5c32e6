//! The state of the PostgreSQL server and the schema, for `ipseity doctor`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ipseity_domain::causes;
use sqlx::{ConnectOptions, FromRow, PgConnection};

use crate::error::StoreError;
use crate::pool::{IDLE_IN_TRANSACTION, MIGRATOR, Store};
use crate::servers::{self, PostgresServer};

/// Number of clock samples. The one with the shortest round trip is the most accurate.
const CLOCK_SAMPLES: usize = 5;

/// The state of a PostgreSQL server.
#[derive(Clone, Debug, Default)]
pub struct PostgresServerInfo {
    /// Host and port, or the path of its socket.
    pub address: String,
    /// The other servers of the URL.
    pub others: Vec<PostgresServer>,
    /// The version, such as `15.8`.
    pub version: String,
    /// The version as a number, such as 150008.
    pub version_number: i32,
    /// Whether it is a replica or read-only.
    pub is_read_only: bool,
    /// Why it cannot commit, for example because its disk is full.
    pub write_error: Option<String>,
    /// The encoding of the database, such as `UTF8`.
    pub encoding: String,
    /// Whether `fsync` is on, so that a commit waits for the disk.
    pub fsync: bool,
    /// Maximum number of connections.
    pub connections_max: i32,
    /// Whether the role may read and write every table, as far as a node does.
    pub can_write: bool,
    /// Whether the role may call the functions that identify the server.
    pub can_read_identity: bool,
    /// Whether the session has the settings that it was opened with. A connection pooler may drop them.
    pub has_session_settings: bool,
    /// Number of migrations of this version.
    pub known_migrations: usize,
    /// Migrations that are not applied.
    pub pending_migrations: Vec<i64>,
    /// Migrations that failed, or were applied with different content.
    pub invalid_migrations: Vec<i64>,
    /// Applied migrations of a newer version.
    pub unknown_migrations: Vec<i64>,
    /// How far the server's clock is ahead of this machine's, in milliseconds.
    pub clock_offset_ms: i64,
    /// The round-trip time of a statement.
    pub round_trip: Duration,
}

#[derive(FromRow)]
struct PostgresServerInfoRow {
    version: String,
    version_number: i32,
    is_read_only: bool,
    encoding: String,
    fsync: bool,
    connections_max: i32,
    has_migrations_table: bool,
    can_write: bool,
    can_read_identity: bool,
    has_session_settings: bool,
}

#[derive(FromRow)]
struct AppliedMigrationRow {
    version: i64,
    checksum: Vec<u8>,
    success: bool,
}

impl Store {
    /// Reads the state of the server over a dedicated connection. A pool would retry and hide the cause of an error.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable or rejects the connection.
    pub async fn inspect_server(&self) -> Result<PostgresServerInfo, StoreError> {
        let diagnostics = async {
            let options = self.pool.connect_options();
            let mut connection = options.connect().await?;
            let info = diagnostics(&mut connection).await?;
            Ok::<_, sqlx::Error>(PostgresServerInfo { address: servers::address(&options), ..info })
        };
        let mut info = self.with_timeout(diagnostics).await?;
        if let Some(servers) = &self.servers {
            info.others = servers.probe().await;
            info.others.retain(|server| server.address != info.address);
        }
        Ok(info)
    }
}

async fn diagnostics(connection: &mut PgConnection) -> Result<PostgresServerInfo, sqlx::Error> {
    let server: PostgresServerInfoRow = sqlx::query_as(
        "select split_part(current_setting('server_version'), ' ', 1) as version,
                current_setting('server_version_num')::int as version_number,
                pg_is_in_recovery() or current_setting('transaction_read_only')::boolean as is_read_only,
                current_setting('server_encoding') as encoding,
                current_setting('fsync')::boolean as fsync,
                current_setting('max_connections')::int as connections_max,
                to_regclass('_sqlx_migrations') is not null as has_migrations_table,
                coalesce((select bool_and(has_table_privilege(c.oid, p.privilege))
                          from pg_class c cross join unnest(array['select', 'insert', 'update', 'delete']) p (privilege)
                          where (c.relname <> 'security_events' or p.privilege in ('select', 'insert'))
                              and (c.relname not in ('sites', 'audit_events') or p.privilege = 'select')
                              and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> '_sqlx_migrations'
                              and (c.relnamespace, c.relowner) =
                                  (select relnamespace, relowner from pg_class where oid = to_regclass('keys'))
                         ), true)
                and coalesce((select bool_and(has_function_privilege(to_regprocedure(f.name), 'execute'))
                              from unnest(array['tend_months(int)', 'claim_data_set(uuid,text,interval)',
                                                'release_data_set(uuid)',
                                                'delete_security_events(int,bigint)',
                                                'delete_audit_events(int,bigint)']) f (name)), true) as can_write,
                (select bool_and(has_function_privilege(f.name, 'execute'))
                 from unnest(array['pg_control_system()', 'pg_walfile_name(pg_lsn)', 'pg_current_wal_lsn()']) f (name)
                ) as can_read_identity,
                current_setting($1) = $2 as has_session_settings",
    )
    .bind(IDLE_IN_TRANSACTION.0)
    .bind(IDLE_IN_TRANSACTION.1)
    .fetch_one(&mut *connection)
    .await?;
    let applied: Vec<AppliedMigrationRow> = if server.has_migrations_table {
        let all = sqlx::query_as("select version, checksum, success from _sqlx_migrations order by version");
        all.fetch_all(&mut *connection).await?
    } else {
        Vec::new()
    };
    let (clock_offset_ms, round_trip) = measure_clock_offset(connection).await?;
    // Writes a message to the log of PostgreSQL, and waits for the disk. It changes no table.
    let write =
        sqlx::query("select pg_logical_emit_message(true, 'ipseity', 'doctor')").execute(&mut *connection).await;
    let write_error = write.err().filter(|_| !server.is_read_only).map(|error| causes(&error).to_string());
    let find = |version: i64| applied.iter().find(|applied| applied.version == version);
    let is_invalid = |version: i64, checksum: &[u8]| {
        find(version).is_some_and(|applied| !applied.success || applied.checksum != checksum)
    };
    Ok(PostgresServerInfo {
        address: String::new(),
        others: Vec::new(),
        version: server.version,
        version_number: server.version_number,
        is_read_only: server.is_read_only,
        write_error,
        encoding: server.encoding,
        fsync: server.fsync,
        connections_max: server.connections_max,
        can_write: server.can_write,
        can_read_identity: server.can_read_identity,
        has_session_settings: server.has_session_settings,
        known_migrations: MIGRATOR.iter().count(),
        pending_migrations: MIGRATOR
            .iter()
            .map(|migration| migration.version)
            .filter(|version| find(*version).is_none())
            .collect(),
        invalid_migrations: MIGRATOR
            .iter()
            .filter(|migration| is_invalid(migration.version, &migration.checksum))
            .map(|migration| migration.version)
            .collect(),
        unknown_migrations: applied
            .iter()
            .map(|applied| applied.version)
            .filter(|version| !MIGRATOR.version_exists(*version))
            .collect(),
        clock_offset_ms,
        round_trip,
    })
}

async fn measure_clock_offset(connection: &mut PgConnection) -> Result<(i64, Duration), sqlx::Error> {
    let (mut clock_offset_ms, mut shortest) = (0, Duration::MAX);
    for _ in 0..CLOCK_SAMPLES {
        let (sent_at, sent_ms) = (Instant::now(), now_ms());
        let time = sqlx::query_scalar("select floor(extract(epoch from clock_timestamp()) * 1000)::bigint");
        let time_ms: i64 = time.fetch_one(&mut *connection).await?;
        let round_trip = sent_at.elapsed();
        if round_trip < shortest {
            let half_ms = i64::try_from(round_trip.as_millis() / 2).unwrap_or_default();
            (clock_offset_ms, shortest) = (time_ms - sent_ms - half_ms, round_trip);
        }
    }
    Ok((clock_offset_ms, shortest))
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
