//! The connection pool.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::error::StoreError;

/// The migrations of this version.
pub(crate) static MIGRATOR: Migrator = sqlx::migrate!();
const NODE_ROLE_GRANTS: &str = include_str!("node_role.sql");

/// Settings with which PostgreSQL ends the session of a process that froze in a transaction or became unreachable, within
/// about 8 seconds. Its locks would block other nodes.
const ABANDONED_SESSION_SETTINGS: [(&str, &str); 5] = [
    ("idle_in_transaction_session_timeout", "5s"),
    ("tcp_user_timeout", "5s"),
    ("tcp_keepalives_idle", "5s"),
    ("tcp_keepalives_interval", "1s"),
    ("tcp_keepalives_count", "3"),
];

/// How to connect to PostgreSQL.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The connection URL: `postgres://…`
    pub url: String,
    /// The name of these connections in PostgreSQL's views and logs, to distinguish requests from background work.
    pub application_name: &'static str,
    /// Maximum number of connections.
    pub connections_max: u32,
    /// Timeout of a statement, including the wait for a connection.
    pub timeout: Duration,
}

/// A connection pool for PostgreSQL. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) pool: PgPool,
    pub(crate) timeout: Duration,
}

impl Store {
    /// Creates a pool that connects on first use, so that the service can start while PostgreSQL is unavailable.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn new(options: &StoreOptions) -> Result<Self, StoreError> {
        let timeout_ms = options.timeout.as_millis().to_string();
        let connect_options = PgConnectOptions::from_str(&options.url)?
            .application_name(options.application_name)
            .options([("statement_timeout", timeout_ms.as_str()), ("timezone", "UTC")])
            .options(ABANDONED_SESSION_SETTINGS)
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(options.connections_max)
            .acquire_timeout(options.timeout)
            // A restart of PostgreSQL leaves dead connections in the pool, and each would fail a call. The cost of the
            // test is acceptable, because requests with a known key do not come here.
            .test_before_acquire(true)
            .connect_lazy_with(connect_options);
        Ok(Self { pool, timeout: options.timeout })
    }

    /// Applies pending migrations, and grants the role `ipseity_node` what a node needs.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable or has a schema of a newer version.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // Detached from the pool and without a timeout, because a migration may be slow or wait for another node's.
        let mut connection = self.pool.acquire().await?.detach();
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

    /// Applies the timeout on the client side too, because a frozen server enforces no statement timeout.
    pub(crate) async fn with_timeout<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, StoreError>
    where
        StoreError: From<E>,
    {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(outcome) => Ok(outcome?),
            Err(_elapsed) => Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()).into()),
        }
    }
}
