//! The connection to the counter store: one, shared by all requests, made anew when it is lost, and stamped.
//!
//! Deliberately absent: retries. A library that repeats a charge by itself charges twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::outage::LedgerError;

/// A store whose machine vanished acknowledges nothing; a slow or frozen one still does, and keeps its connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(3);

pub(crate) struct Link {
    client: Client,
    current: ArcSwapOption<Session>,
    /// Held by the one that connects; the others wait for its outcome.
    connecting: Mutex<()>,
}

/// A connection and the identity of the store at its other end.
pub(crate) struct Session {
    pub(crate) connection: MultiplexedConnection,
    /// `run_id` and `master_replid`: a store that was restarted, restored or promoted has another stamp, and records under the old one are not
    /// believed.
    pub(crate) stamp: String,
    lost: Arc<AtomicBool>,
}

impl Link {
    pub(crate) fn new(url: &str) -> Result<Self, LedgerError> {
        let info = url.into_connection_info()?;
        // Only in RESP3 does the library tell of a lost connection before the next call finds out.
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(UNACKNOWLEDGED_MAX);
        let client = Client::open(info.set_redis_settings(resp3).set_tcp_settings(tcp))?;
        Ok(Self { client, current: ArcSwapOption::empty(), connecting: Mutex::new(()) })
    }

    /// The session that stands, or a new one.
    pub(crate) async fn session(&self, deadline: Instant) -> Result<Arc<Session>, LedgerError> {
        if let Some(session) = self.standing() {
            return Ok(session);
        }
        tokio::time::timeout_at(deadline, self.connect()).await.unwrap_or(Err(LedgerError::Unreachable))
    }

    fn standing(&self) -> Option<Arc<Session>> {
        self.current.load_full().filter(|session| !session.lost.load(Ordering::Acquire))
    }

    async fn connect(&self) -> Result<Arc<Session>, LedgerError> {
        let _connecting = self.connecting.lock().await;
        if let Some(session) = self.standing() {
            return Ok(session);
        }
        let lost = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&lost);
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                told.store(true, Ordering::Release);
            }
            Ok::<_, redis::aio::SendError>(())
        });
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(LedgerError::NotApplied)?;
        let stamp = identify(&mut connection).await.map_err(LedgerError::NotApplied)?;
        let session = Arc::new(Session { connection, stamp, lost });
        self.current.store(Some(Arc::clone(&session)));
        Ok(session)
    }

    /// Lets a session go that is of no more use; the next call makes another.
    pub(crate) fn give_up(&self, session: &Arc<Session>) {
        session.lost.store(true, Ordering::Release);
    }

    /// Reads the store's identity again; returns a session with the new stamp if it has changed under the connection.
    pub(crate) async fn identify_again(&self, session: &Arc<Session>) -> Result<Option<Arc<Session>>, LedgerError> {
        let mut connection = session.connection.clone();
        let stamp = identify(&mut connection).await?;
        if stamp == session.stamp {
            return Ok(None);
        }
        let renewed = Arc::new(Session { connection, stamp, lost: Arc::clone(&session.lost) });
        self.current.store(Some(Arc::clone(&renewed)));
        Ok(Some(renewed))
    }
}

async fn identify(connection: &mut MultiplexedConnection) -> Result<String, RedisError> {
    let info: String = redis::cmd("INFO").arg("server").arg("replication").query_async(connection).await?;
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    // Sixteen characters tell two stores apart, and every record carries them.
    Ok(format!("{:.8}{:.8}", field("run_id"), field("master_replid")))
}
