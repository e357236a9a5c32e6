//! The connection pool.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::{KeyId, causes};
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::StoreError;
use crate::servers::{PROBE_INTERVAL, PostgresServers};
use crate::url::{InvalidStoreUrl, parse_url};

/// The migrations of this version.
pub(crate) static MIGRATOR: Migrator = sqlx::migrate!();
const NODE_ROLE_GRANTS: &str = include_str!("node_role.sql");

pub(crate) const IDLE_IN_TRANSACTION: (&str, &str) = ("idle_in_transaction_session_timeout", "5s");
/// Settings with which PostgreSQL ends the session of a process that froze in a transaction or became unreachable, within
/// about 8 seconds. Its locks would block other nodes.
const ABANDONED_SESSION_SETTINGS: [(&str, &str); 5] = [
    IDLE_IN_TRANSACTION,
    ("tcp_user_timeout", "5s"),
    ("tcp_keepalives_idle", "5s"),
    ("tcp_keepalives_interval", "1s"),
    ("tcp_keepalives_count", "3"),
];

/// How to connect to PostgreSQL.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The connection URL: `postgres://…`. Of several hosts, separated by commas, the one that accepts writes is used.
    pub url: String,
    /// The name of these connections in PostgreSQL's views and logs, to distinguish requests from background work.
    pub application_name: &'static str,
    /// The operator whose changes the audit log records, for commands.
    pub operator: Option<String>,
    /// The id of the personal token whose changes the audit log records.
    pub token: Option<KeyId>,
    /// Maximum number of connections.
    pub connections_max: u32,
    /// Timeout of a statement, including the wait for a connection.
    pub timeout: Duration,
}

/// How the schema differs from that of this version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Migrations of this version that are not applied.
    pub pending: Vec<i64>,
    /// Migrations that were applied with different content, by another program or a changed build.
    pub differing: Vec<i64>,
}

/// A connection pool for PostgreSQL. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) pool: PgPool,
    pub(crate) timeout: Duration,
    /// `None` if the URL has one host.
    pub(crate) servers: Option<Arc<PostgresServers>>,
    connect_probe: ConnectProbe,
    options: Arc<StoreOptions>,
}

impl Store {
    /// Creates a pool that connects on first use, so that the service can start while PostgreSQL is unavailable.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn new(options: &StoreOptions) -> Result<Self, InvalidStoreUrl> {
        let timeout_ms = options.timeout.as_millis().to_string();
        let mut hosts = parse_url(&options.url)?;
        for host in &mut hosts {
            *host = host
                .clone()
                .application_name(options.application_name)
                // Statements are short: to compile one takes longer than to run it.
                .options([("statement_timeout", timeout_ms.as_str()), ("timezone", "UTC"), ("jit", "off")])
                .options(ABANDONED_SESSION_SETTINGS)
                .options(options.operator.iter().map(|operator| ("ipseity.operator", operator)))
                .options(options.token.iter().map(|token| ("ipseity.token", token.as_str())))
                .disable_statement_logging();
        }
        let pool = PgPoolOptions::new()
            .max_connections(options.connections_max)
            .acquire_timeout(options.timeout)
            // A restart of PostgreSQL leaves dead connections in the pool, and each would fail a call. The cost of the
            // test is acceptable, because requests with a known key do not come here.
            .test_before_acquire(true);
        let first = hosts[0].clone();
        if hosts.len() == 1 {
            let (pool, connect_probe) = (pool.connect_lazy_with(first), ConnectProbe::default());
            let options = Arc::new(options.clone());
            return Ok(Self { pool, timeout: options.timeout, servers: None, connect_probe, options });
        }
        let servers = Arc::new(PostgresServers::new(hosts, options.timeout));
        let (chosen, opened) = (Arc::clone(&servers), Arc::clone(&servers));
        let pool = pool
            .after_connect(move |connection, _| {
                let servers = Arc::clone(&opened);
                Box::pin(async move { servers.ensure_primary(connection).await })
            })
            // A test of a connection to a frozen server would take all the time of a call.
            .test_before_acquire(false)
            .before_acquire(move |connection, connected| {
                let is_current = chosen.is_current(connected.age);
                Box::pin(async move { Ok(is_current && connection.ping().await.is_ok()) })
            })
            .connect_lazy_with(first);
        let options = Arc::new(options.clone());
        let connect_probe = ConnectProbe::default();
        Ok(Self { pool, timeout: options.timeout, servers: Some(servers), connect_probe, options })
    }

    /// A store with a separate connection, for a change with a personal token. The audit log records the name of the token.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn for_token(&self, token: KeyId) -> Result<Self, InvalidStoreUrl> {
        Self::new(&StoreOptions { token: Some(token), connections_max: 1, ..(*self.options).clone() })
    }

    /// Applies pending migrations, and grants the role `ipseity_node` what a node needs.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable or has a schema of a newer version.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // Detached from the pool and without a timeout, because a migration may be slow or wait for another node's.
        self.find_primary().await?;
        let mut connection = self.with_timeout(self.pool.acquire()).await?.detach();
        sqlx::query("set statement_timeout = 0").execute(&mut connection).await?;
        MIGRATOR.run(&mut connection).await.map_err(|error| {
            if let MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) = error {
                cause.into()
            } else {
                StoreError::Fault(sqlx::Error::Migrate(Box::new(error)))
            }
        })?;
        sqlx::raw_sql(NODE_ROLE_GRANTS).execute(&mut connection).await?;
        Ok(())
    }

    /// Checks that PostgreSQL responds and has the schema.
    ///
    /// # Errors
    /// If it does not.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.with_timeout(sqlx::query("select 1 from plans limit 1").execute(&self.pool)).await?;
        Ok(())
    }

    /// Connects once, to find out why the pool does not.
    ///
    /// # Errors
    /// If PostgreSQL rejects the connection or does not answer.
    pub async fn connect_once(&self) -> Result<(), StoreError> {
        let connection = self.with_timeout(async { self.pool.connect_options().connect().await }).await?;
        Ok(connection.close().await?)
    }

    /// How the schema differs from that of this version. Newer migrations do not matter.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        let query =
            sqlx::query_as("select version, checksum from _sqlx_migrations where success").fetch_all(&self.pool);
        let applied: Vec<(i64, Vec<u8>)> = match self.with_timeout(query).await {
            Err(StoreError::Fault(error)) if is_missing_table(&error) => Vec::new(),
            applied => applied?,
        };
        let mut status = SchemaStatus::default();
        for migration in MIGRATOR.iter() {
            match applied.iter().find(|(version, _)| *version == migration.version) {
                None => status.pending.push(migration.version),
                Some((_, checksum)) if *checksum != *migration.checksum => status.differing.push(migration.version),
                Some(_) => {}
            }
        }
        Ok(status)
    }

    /// Whether PostgreSQL rejects writes: it is a replica, or `default_transaction_read_only` is on.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn is_read_only(&self) -> Result<bool, StoreError> {
        let sql = "select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean";
        self.with_timeout(sqlx::query_scalar(sql).fetch_one(&self.pool)).await
    }

    /// Applies the timeout on the client side too, because a frozen server enforces no statement timeout.
    pub(crate) async fn with_timeout<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, StoreError>
    where
        StoreError: From<E>,
    {
        let Some(servers) = &self.servers else {
            return self.with_cause(call).await;
        };
        let outcome = tokio::time::timeout(self.timeout, servers.with_primary(&self.pool, call)).await;
        outcome.unwrap_or_else(|_elapsed| Err(timed_out().into())).map_err(|error| {
            let cause = servers.last_failure().filter(|_| is_timeout(&error));
            cause.unwrap_or(error)
        })
    }

    /// Adds the cause to a timeout. The pool retries a refused connection until its timeout, and does not say why.
    async fn with_cause<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, StoreError>
    where
        StoreError: From<E>,
    {
        let mut call = pin!(tokio::time::timeout(self.timeout, call));
        let outcome = match tokio::time::timeout(self.timeout / 2, &mut call).await {
            Ok(outcome) => outcome,
            Err(_slow) => {
                self.connect_probe.start(&self.pool, self.timeout / 2);
                call.await
            }
        };
        let outcome = outcome.map_err(|_elapsed| timed_out().into()).and_then(|outcome| outcome.map_err(Into::into));
        outcome.map_err(|error: StoreError| match self.connect_probe.failure().filter(|_| is_timeout(&error)) {
            Some(cause) => StoreError::Outage(sqlx::Error::Io(io::Error::other(cause))),
            None => error,
        })
    }

    /// With several hosts, chooses the one that accepts writes.
    async fn find_primary(&self) -> Result<(), StoreError> {
        match &self.servers {
            Some(servers) => servers.find_primary(&self.pool).await,
            None => Ok(()),
        }
    }
}

/// Connects while a call is slow, to find out why the pool does not. One connection at a time, and not often, so that it is
/// no burden for an overloaded server.
#[derive(Clone, Default)]
struct ConnectProbe(Arc<Mutex<LastConnect>>);

#[derive(Default)]
struct LastConnect {
    at: Option<Instant>,
    failure: Option<String>,
}

impl ConnectProbe {
    fn start(&self, pool: &PgPool, timeout: Duration) {
        let Ok(mut last) = Arc::clone(&self.0).try_lock_owned() else { return };
        if last.at.is_some_and(|at| at.elapsed() < PROBE_INTERVAL) {
            return;
        }
        let options = pool.connect_options();
        tokio::spawn(async move {
            // The answer of a slow server is no cause.
            let outcome = tokio::time::timeout(timeout, options.connect()).await;
            last.failure = match outcome {
                Ok(Err(error)) => Some(causes(&error).to_string()),
                Ok(Ok(connection)) => connection.close().await.err().map(|error| causes(&error).to_string()),
                Err(_elapsed) => None,
            };
            last.at = Some(Instant::now());
        });
    }

    /// Why the last connection failed.
    fn failure(&self) -> Option<String> {
        self.0.try_lock().ok()?.failure.clone()
    }
}

fn timed_out() -> sqlx::Error {
    sqlx::Error::Io(io::ErrorKind::TimedOut.into())
}

/// Whether the error does not say why a connection failed.
fn is_timeout(error: &StoreError) -> bool {
    let StoreError::Outage(error) = error else { return false };
    matches!(error, sqlx::Error::PoolTimedOut)
        || matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    const UNDEFINED_TABLE: &str = "42P01";
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == UNDEFINED_TABLE)
}
