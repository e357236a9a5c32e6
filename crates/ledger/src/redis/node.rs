//! A connection to one server of the counter store: shared by all requests, made anew when it is lost, and stamped.
//!
//! Deliberately absent: retries. A library that repeats a charge by itself charges twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::LedgerError;
use crate::redis::batch::BatchHandle;

/// A store whose machine vanished acknowledges nothing; a slow or frozen one still does, and keeps its connection.
pub(crate) const TCP_USER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time to connect, for whoever still waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct RedisNode {
    client: Client,
    current_connection: ArcSwapOption<RedisConnection>,
    /// Held by the one that connects; the others wait for its outcome.
    connecting: Arc<Mutex<()>>,
}

/// A connection and the identity of the server at its other end.
pub(crate) struct RedisConnection {
    pub(crate) conn: MultiplexedConnection,
    pub(crate) identity: ServerIdentity,
    pub(crate) batcher: BatchHandle,
    dead: Arc<AtomicBool>,
}

/// Who a server is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// `run_id` and `master_replid`: a store that was restarted, restored or promoted has another stamp, and records under the old one are not
    /// believed.
    pub(crate) incarnation: String,
    pub(crate) is_primary: bool,
    pub(crate) is_cluster: bool,
}

impl RedisNode {
    pub(crate) fn new(info: ConnectionInfo) -> Result<Self, LedgerError> {
        // Only in RESP3 does the library tell of a lost connection before the next call finds out.
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(TCP_USER_TIMEOUT);
        let client = Client::open(info.set_redis_settings(resp3).set_tcp_settings(tcp))?;
        Ok(Self { client, current_connection: ArcSwapOption::empty(), connecting: Arc::default() })
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// A link to another server of the same cluster: with the same credentials, and encrypted if this one is.
    pub(crate) fn sibling(&self, address: ConnectionAddr) -> Result<Self, LedgerError> {
        Self::new(self.client.get_connection_info().clone().set_addr(address))
    }

    /// The session that stands, or a new one.
    pub(crate) async fn connection(self: &Arc<Self>, deadline: Instant) -> Result<Arc<RedisConnection>, LedgerError> {
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        Box::pin(timeout_at(deadline, self.connect())).await.unwrap_or(Err(LedgerError::Unreachable))
    }

    pub(crate) fn live_connection(&self) -> Option<Arc<RedisConnection>> {
        self.current_connection.load_full().filter(|connection| !connection.dead.load(Ordering::Acquire))
    }

    /// Connects in a task of its own, which goes on when whoever waits for it has left: the next one finds it done.
    async fn connect(self: &Arc<Self>) -> Result<Arc<RedisConnection>, LedgerError> {
        let guard = Arc::clone(&self.connecting).lock_owned().await;
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        let node = Arc::clone(self);
        let connecting = tokio::spawn(async move {
            let _guard = guard;
            let opened = timeout(CONNECT_TIMEOUT, node.open()).await.map_err(|_late| LedgerError::Unreachable)?;
            let connection = Arc::new(opened.map_err(LedgerError::NotApplied)?);
            node.current_connection.store(Some(Arc::clone(&connection)));
            Ok(connection)
        });
        connecting.await.unwrap_or(Err(LedgerError::Unreachable))
    }

    async fn open(&self) -> Result<RedisConnection, RedisError> {
        let dead = Arc::new(AtomicBool::new(false));
        let dead_flag = Arc::clone(&dead);
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                dead_flag.store(true, Ordering::Release);
            }
            Ok::<_, redis::aio::SendError>(())
        });
        let mut conn = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let identity = ServerIdentity::fetch(&mut conn).await?;
        Ok(RedisConnection::new(conn, identity, dead))
    }

    /// Reads the server's identity again; returns a session with the new one if it has changed under the connection.
    pub(crate) async fn refresh_identity(
        &self,
        connection: &Arc<RedisConnection>,
    ) -> Result<Option<Arc<RedisConnection>>, LedgerError> {
        let identity = ServerIdentity::fetch(&mut connection.conn.clone()).await?;
        if identity == connection.identity {
            return Ok(None);
        }
        let refreshed = Arc::new(RedisConnection::new(connection.conn.clone(), identity, Arc::clone(&connection.dead)));
        self.current_connection.store(Some(Arc::clone(&refreshed)));
        Ok(Some(refreshed))
    }

    /// Lets the session go, if there is one; the next call makes another.
    pub(crate) fn disconnect(&self) {
        if let Some(connection) = self.current_connection.swap(None) {
            connection.mark_dead();
        }
    }
}

impl RedisConnection {
    fn new(conn: MultiplexedConnection, identity: ServerIdentity, dead: Arc<AtomicBool>) -> Self {
        let batcher = BatchHandle::start(conn.clone(), identity.clone());
        Self { conn, identity, batcher, dead }
    }

    /// Marks a session as of no more use.
    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }
}

impl ServerIdentity {
    async fn fetch(conn: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("server").arg("replication").arg("cluster").query_async(conn).await?;
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
        Ok(Self {
            // Sixteen characters tell two stores apart, and every record carries them.
            incarnation: format!("{:.8}{:.8}", field("run_id"), field("master_replid")),
            is_primary: field("role") == "master",
            is_cluster: field("cluster_enabled") == "1",
        })
    }
}
