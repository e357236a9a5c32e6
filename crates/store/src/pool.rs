//! The connection pool.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use crate::error::StoreError;

/// The schema that this version knows.
pub(crate) static MIGRATOR: Migrator = sqlx::migrate!();

/// How to reach PostgreSQL.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// `postgres://…`
    pub url: String,
    /// What PostgreSQL's own views and logs call these connections, so that requests and background work can be told apart.
    pub application_name: &'static str,
    /// Connections at the most.
    pub connections_max: u32,
    /// Time for a statement, waiting for a connection included.
    pub timeout: Duration,
}

/// A handle on PostgreSQL; cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) pool: PgPool,
    pub(crate) timeout: Duration,
}

impl Store {
    /// Makes a pool that connects when it is first used: a service must be able to start while its database is away.
    ///
    /// # Errors
    /// When the address cannot be read.
    pub fn new(options: &StoreOptions) -> Result<Self, StoreError> {
        let timeout_ms = options.timeout.as_millis().to_string();
        let connect_options = PgConnectOptions::from_str(&options.url)?
            .application_name(options.application_name)
            .options([("statement_timeout", timeout_ms.as_str()), ("timezone", "UTC")])
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(options.connections_max)
            .acquire_timeout(options.timeout)
            // A restart leaves dead connections behind, each of which would fail somebody. No request whose key is known comes here.
            .test_before_acquire(true)
            .connect_lazy_with(connect_options);
        Ok(Self { pool, timeout: options.timeout })
    }

    /// Brings the schema up to date.
    ///
    /// # Errors
    /// When PostgreSQL is away or holds a schema that this version does not know.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        // A connection of its own, not to be pooled: a migration may take its time, and may have to wait for another node's.
        let mut connection = self.pool.acquire().await?.detach();
        sqlx::query("set statement_timeout = 0").execute(&mut connection).await?;
        MIGRATOR.run(&mut connection).await.map_err(|error| {
            if let MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _) = error {
                cause.into()
            } else {
                StoreError::Fault(sqlx::Error::Migrate(Box::new(error)))
            }
        })
    }

    /// Whether PostgreSQL answers and has the schema.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.with_timeout(sqlx::query("select 1 from plans limit 1").execute(&self.pool)).await?;
        Ok(())
    }

    /// Bounds a call in time on this side too: a server that froze keeps its connections open and stops no statement.
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
