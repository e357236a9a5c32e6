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

use crate::outage::LedgerError;
use crate::sheaf::Sheaves;

/// A store whose machine vanished acknowledges nothing; a slow or frozen one still does, and keeps its connection.
pub(crate) const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(3);
/// Time to connect, for whoever still waits for it.
const CONNECT_MAX: Duration = Duration::from_secs(3);

pub(crate) struct Link {
    client: Client,
    current: ArcSwapOption<Session>,
    /// Held by the one that connects; the others wait for its outcome.
    connecting: Arc<Mutex<()>>,
}

/// A connection and the identity of the server at its other end.
pub(crate) struct Session {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) identity: Identity,
    pub(crate) sheaves: Sheaves,
    lost: Arc<AtomicBool>,
}

/// Who a server is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `run_id` and `master_replid`: a store that was restarted, restored or promoted has another stamp, and records under the old one are not
    /// believed.
    pub(crate) stamp: String,
    pub(crate) is_primary: bool,
    pub(crate) is_cluster: bool,
}

impl Link {
    pub(crate) fn new(info: ConnectionInfo) -> Result<Self, LedgerError> {
        // Only in RESP3 does the library tell of a lost connection before the next call finds out.
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(UNACKNOWLEDGED_MAX);
        let client = Client::open(info.set_redis_settings(resp3).set_tcp_settings(tcp))?;
        Ok(Self { client, current: ArcSwapOption::empty(), connecting: Arc::default() })
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// A link to another server of the same cluster: with the same credentials, and encrypted if this one is.
    pub(crate) fn beside(&self, address: ConnectionAddr) -> Result<Self, LedgerError> {
        Self::new(self.client.get_connection_info().clone().set_addr(address))
    }

    /// The session that stands, or a new one.
    pub(crate) async fn session(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Session>, LedgerError> {
        if let Some(session) = self.standing() {
            return Ok(session);
        }
        Box::pin(timeout_at(deadline, self.connect())).await.unwrap_or(Err(LedgerError::Unreachable))
    }

    pub(crate) fn standing(&self) -> Option<Arc<Session>> {
        self.current.load_full().filter(|session| !session.lost.load(Ordering::Acquire))
    }

    /// Connects in a task of its own, which goes on when whoever waits for it has left: the next one finds it done.
    async fn connect(self: &Arc<Self>) -> Result<Arc<Session>, LedgerError> {
        let turn = Arc::clone(&self.connecting).lock_owned().await;
        if let Some(session) = self.standing() {
            return Ok(session);
        }
        let link = Arc::clone(self);
        let connecting = tokio::spawn(async move {
            let _turn = turn;
            let opened = timeout(CONNECT_MAX, link.open()).await.map_err(|_late| LedgerError::Unreachable)?;
            let session = Arc::new(opened.map_err(LedgerError::NotApplied)?);
            link.current.store(Some(Arc::clone(&session)));
            Ok(session)
        });
        connecting.await.unwrap_or(Err(LedgerError::Unreachable))
    }

    async fn open(&self) -> Result<Session, RedisError> {
        let lost = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&lost);
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                told.store(true, Ordering::Release);
            }
            Ok::<_, redis::aio::SendError>(())
        });
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        let identity = Identity::ask(&mut connection).await?;
        Ok(Session::new(connection, identity, lost))
    }

    /// Reads the server's identity again; returns a session with the new one if it has changed under the connection.
    pub(crate) async fn identify_again(&self, session: &Arc<Session>) -> Result<Option<Arc<Session>>, LedgerError> {
        let now = Identity::ask(&mut session.connection.clone()).await?;
        if now == session.identity {
            return Ok(None);
        }
        let renewed = Arc::new(Session::new(session.connection.clone(), now, Arc::clone(&session.lost)));
        self.current.store(Some(Arc::clone(&renewed)));
        Ok(Some(renewed))
    }

    /// Lets the session go, if there is one; the next call makes another.
    pub(crate) fn let_go(&self) {
        if let Some(session) = self.current.swap(None) {
            session.give_up();
        }
    }
}

impl Session {
    fn new(connection: MultiplexedConnection, identity: Identity, lost: Arc<AtomicBool>) -> Self {
        let sheaves = Sheaves::start(connection.clone(), identity.clone());
        Self { connection, identity, sheaves, lost }
    }

    /// Marks a session as of no more use.
    pub(crate) fn give_up(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

impl Identity {
    async fn ask(connection: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("server").arg("replication").arg("cluster").query_async(connection).await?;
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
        Ok(Self {
            // Sixteen characters tell two stores apart, and every record carries them.
            stamp: format!("{:.8}{:.8}", field("run_id"), field("master_replid")),
            is_primary: field("role") == "master",
            is_cluster: field("cluster_enabled") == "1",
        })
    }
}
