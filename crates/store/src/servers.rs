//! Several PostgreSQL servers in one URL: a primary and the standbys that may be promoted.
//!
//! The pool connects to one server, so this chooses which. It asks all servers at the same time, before the first
//! statement, and again while a statement fails or is slow.

use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::causes;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::StoreError;

/// A statement that takes longer than this may wait for a lost primary.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// How long to wait for the other servers after the first primary. A frozen server must not delay the others.
const STRAGGLER_TIMEOUT: Duration = Duration::from_millis(200);
/// How the error of several servers starts.
pub const NO_PRIMARY: &str = "no server accepts writes";
/// SQLSTATE of a write on a server that became a standby or read-only.
const READ_ONLY: &str = "25006";

/// Host and port, or the path of the socket.
pub(crate) fn address(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(path) => path.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostgresRole {
    /// It accepts writes. A promotion starts a new timeline, so the newest primary has the highest.
    Primary {
        /// The current timeline.
        timeline: i32,
    },
    /// It accepts no writes.
    Standby,
    /// It rejected the connection or a statement.
    Rejecting {
        /// Why.
        cause: String,
    },
    /// It did not answer.
    Unreachable {
        /// Why.
        cause: String,
    },
}

/// A server of the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresServer {
    /// Host and port, or the path of its socket.
    pub address: String,
    /// What it answered.
    pub role: PostgresRole,
}

impl PostgresServer {
    /// The timeline, if it is a primary.
    const fn timeline(&self) -> Option<i32> {
        match self.role {
            PostgresRole::Primary { timeline } => Some(timeline),
            PostgresRole::Standby | PostgresRole::Rejecting { .. } | PostgresRole::Unreachable { .. } => None,
        }
    }
}

impl fmt::Display for PostgresServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.role {
            PostgresRole::Primary { .. } => write!(formatter, "{} is a primary", self.address),
            PostgresRole::Standby => write!(formatter, "{} is a standby or read-only", self.address),
            PostgresRole::Rejecting { cause } => write!(formatter, "{} rejects the connection ({cause})", self.address),
            PostgresRole::Unreachable { cause } => write!(formatter, "{} is unreachable ({cause})", self.address),
        }
    }
}

/// No server of the URL accepts writes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{NO_PRIMARY}: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
struct NoPrimary(Vec<PostgresServer>);

impl From<NoPrimary> for StoreError {
    fn from(error: NoPrimary) -> Self {
        Self::Outage(sqlx::Error::Io(io::Error::other(error)))
    }
}

#[derive(Default)]
struct PrimaryState {
    /// Index of the server that the pool connects to.
    index: Option<usize>,
    /// Its timeline.
    timeline: i32,
    /// The newest timeline that a primary had.
    newest_timeline: i32,
    /// Connections that are older are to another server.
    chosen_at: Option<Instant>,
    probed_at: Option<Instant>,
    /// The result of the last probe, if there was no primary.
    failure: Option<NoPrimary>,
}

/// The servers of a pool, and which one it connects to.
pub(crate) struct PostgresServers {
    servers: Vec<PgConnectOptions>,
    timeout: Duration,
    state: StdMutex<PrimaryState>,
    /// Held by the task that asks the servers.
    probing: Arc<Mutex<()>>,
}

impl PostgresServers {
    pub(crate) fn new(servers: Vec<PgConnectOptions>, timeout: Duration) -> Self {
        // Half of the time is left for the statement.
        Self { servers, timeout: timeout / 2, state: StdMutex::default(), probing: Arc::default() }
    }

    /// Runs a call on the pool once it connects to a primary. While the call waits, looks for another primary.
    pub(crate) async fn with_primary<T, E>(
        self: &Arc<Self>,
        pool: &PgPool,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StoreError>
    where
        StoreError: From<E>,
    {
        self.find_primary(pool).await?;
        let mut call = pin!(call);
        loop {
            match timeout(PROBE_INTERVAL, &mut call).await {
                Ok(outcome) => {
                    let outcome = outcome.map_err(StoreError::from);
                    let is_failed = outcome.as_ref().is_err_and(|error| {
                        matches!(error, StoreError::Outage(_)) || error.sqlstate().is_some_and(|code| code == READ_ONLY)
                    });
                    if is_failed || self.is_old_primary() {
                        self.probe_in_background(pool);
                    }
                    return outcome;
                }
                Err(_elapsed) => self.probe_in_background(pool),
            }
        }
    }

    /// Chooses a server if none has been chosen yet.
    pub(crate) async fn find_primary(self: &Arc<Self>, pool: &PgPool) -> Result<(), StoreError> {
        if self.state().index.is_some() {
            return Ok(());
        }
        let guard = Arc::clone(&self.probing).lock_owned().await;
        if self.state().index.is_some() {
            return Ok(());
        }
        // In a separate task, which continues if this call times out. A later call uses the result.
        let probe = tokio::spawn(Arc::clone(self).choose_primary(pool.clone(), guard));
        Ok(probe.await.map_err(|_panicked| sqlx::Error::WorkerCrashed)??)
    }

    /// Why there was no primary when the servers were last asked, for a call that has failed without a cause.
    pub(crate) fn last_failure(&self) -> Option<StoreError> {
        self.state().failure.clone().map(StoreError::from)
    }

    /// Whether a connection of this age is to the chosen server.
    pub(crate) fn is_current(&self, age: Duration) -> bool {
        self.state().chosen_at.is_some_and(|chosen_at| age < chosen_at.elapsed())
    }

    /// Whether a newer primary was not reachable when this one was chosen.
    fn is_old_primary(&self) -> bool {
        let state = self.state();
        state.timeline < state.newest_timeline
    }

    /// Fails if a new connection is to a standby or to an older primary. The server may have become one since it was
    /// chosen, or another was chosen while the connection was opened.
    pub(crate) async fn ensure_primary(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let cause = match read_role(connection).await? {
            PostgresRole::Primary { timeline } if timeline >= self.state().timeline => return Ok(()),
            PostgresRole::Primary { .. } => "another server was promoted",
            PostgresRole::Standby | PostgresRole::Rejecting { .. } | PostgresRole::Unreachable { .. } => {
                "the server is a standby"
            }
        };
        Err(sqlx::Error::Io(io::Error::other(cause)))
    }

    /// What each server answers. Servers that answer after the newest known primary are not waited for.
    pub(crate) async fn probe(&self) -> Vec<PostgresServer> {
        let mut probes: JoinSet<_> = self
            .servers
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, options)| async move { (index, ask_role(&options).await) })
            .collect();
        let unanswered = |options| PostgresServer {
            address: address(options),
            role: PostgresRole::Unreachable { cause: format!("no answer in {} ms", self.timeout.as_millis()) },
        };
        let mut servers: Vec<PostgresServer> = self.servers.iter().map(unanswered).collect();
        let newest_timeline = self.state().newest_timeline;
        let mut deadline = tokio::time::Instant::now() + self.timeout;
        while let Ok(Some(probe)) = tokio::time::timeout_at(deadline, probes.join_next()).await {
            let Ok((index, role)) = probe else { continue };
            servers[index].role = role.unwrap_or_else(|error| failed_role(&error));
            if servers[index].timeline().is_some_and(|timeline| newest_timeline > 0 && timeline >= newest_timeline) {
                deadline = deadline.min(tokio::time::Instant::now() + STRAGGLER_TIMEOUT);
            }
        }
        servers
    }

    fn probe_in_background(self: &Arc<Self>, pool: &PgPool) {
        let is_recent = self.state().probed_at.is_some_and(|probed_at| probed_at.elapsed() < PROBE_INTERVAL);
        if !is_recent && let Ok(guard) = Arc::clone(&self.probing).try_lock_owned() {
            tokio::spawn(Arc::clone(self).choose_primary(pool.clone(), guard));
        }
    }

    /// Lets the pool connect to the newest primary. Without one, it keeps the server that it has.
    async fn choose_primary(self: Arc<Self>, pool: PgPool, _guard: OwnedMutexGuard<()>) -> Result<(), NoPrimary> {
        let servers = self.probe().await;
        let primaries = servers.iter().enumerate().filter_map(|(index, server)| Some((server.timeline()?, index)));
        // The first of several with the same timeline.
        let newest = primaries.max_by_key(|(timeline, index)| (*timeline, std::cmp::Reverse(*index)));
        let mut state = self.state();
        state.probed_at = Some(Instant::now());
        let Some((timeline, index)) = newest else {
            let failure = NoPrimary(servers);
            state.failure = Some(failure.clone());
            return Err(failure);
        };
        state.failure = None;
        (state.timeline, state.newest_timeline) = (timeline, state.newest_timeline.max(timeline));
        if state.index != Some(index) {
            pool.set_connect_options(self.servers[index].clone());
            (state.index, state.chosen_at) = (Some(index), Some(Instant::now()));
        }
        Ok(())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, PrimaryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed_role(error: &sqlx::Error) -> PostgresRole {
    let cause = causes(error).to_string();
    if error.as_database_error().is_some() {
        PostgresRole::Rejecting { cause }
    } else {
        PostgresRole::Unreachable { cause }
    }
}

async fn ask_role(options: &PgConnectOptions) -> Result<PostgresRole, sqlx::Error> {
    let mut connection = options.connect().await?;
    let role = read_role(&mut connection).await?;
    connection.close().await?;
    Ok(role)
}

async fn read_role(connection: &mut PgConnection) -> Result<PostgresRole, sqlx::Error> {
    let timeline: Option<String> = sqlx::query_scalar(
        "select case when not pg_is_in_recovery() and not current_setting('transaction_read_only')::boolean
                     then left(pg_walfile_name(pg_current_wal_lsn()), 8) end",
    )
    .fetch_one(connection)
    .await?;
    let timeline = timeline.and_then(|timeline| i32::from_str_radix(&timeline, 16).ok());
    Ok(timeline.map_or(PostgresRole::Standby, |timeline| PostgresRole::Primary { timeline }))
}
