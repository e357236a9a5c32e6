//! One Redis server and the current connection to it.
//!
//! There are no automatic retries here: a charge that is sent twice is charged twice.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::LedgerError;
use crate::redis::connection::RedisConnection;

/// Closes a connection whose data is not acknowledged. A slow or frozen server still acknowledges data, and keeps its
/// connection.
pub(crate) const TCP_USER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for connecting. It may exceed the deadline of the request that started it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct RedisNode {
    client: Client,
    current_connection: ArcSwapOption<RedisConnection>,
    /// Held by the task that connects. Other requests wait for it.
    connecting: Arc<Mutex<()>>,
}

impl RedisNode {
    pub(crate) fn new(info: ConnectionInfo) -> Result<Self, LedgerError> {
        // Only with RESP3 does the client library report a lost connection before the next request fails.
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(TCP_USER_TIMEOUT);
        let client = Client::open(info.set_redis_settings(resp3).set_tcp_settings(tcp))?;
        Ok(Self { client, current_connection: ArcSwapOption::empty(), connecting: Arc::default() })
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// Another server of the same cluster, with the same credentials and the same encryption.
    pub(crate) fn sibling(&self, address: ConnectionAddr) -> Result<Self, LedgerError> {
        Self::new(self.client.get_connection_info().clone().set_addr(address))
    }

    /// Returns the current connection, or opens one.
    pub(crate) async fn connection(self: &Arc<Self>, deadline: Instant) -> Result<Arc<RedisConnection>, LedgerError> {
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        Box::pin(timeout_at(deadline, self.connect())).await.unwrap_or(Err(LedgerError::Unreachable))
    }

    pub(crate) fn live_connection(&self) -> Option<Arc<RedisConnection>> {
        self.current_connection.load_full().filter(|connection| !connection.is_dead())
    }

    /// Connects in a separate task. If the request times out, the task continues, and a later request uses the
    /// connection.
    async fn connect(self: &Arc<Self>) -> Result<Arc<RedisConnection>, LedgerError> {
        let guard = Arc::clone(&self.connecting).lock_owned().await;
        if let Some(connection) = self.live_connection() {
            return Ok(connection);
        }
        let node = Arc::clone(self);
        let connecting = tokio::spawn(async move {
            let _guard = guard;
            let opened = timeout(CONNECT_TIMEOUT, RedisConnection::open(&node.client))
                .await
                .map_err(|_late| LedgerError::Unreachable)?;
            let connection = Arc::new(opened.map_err(LedgerError::NotApplied)?);
            node.current_connection.store(Some(Arc::clone(&connection)));
            Ok(connection)
        });
        connecting.await.unwrap_or(Err(LedgerError::Unreachable))
    }

    /// Reads the server's identity again. Returns a connection with the new identity if it has changed.
    pub(crate) async fn refresh_identity(
        &self,
        connection: &RedisConnection,
    ) -> Result<Option<Arc<RedisConnection>>, LedgerError> {
        let refreshed = connection.refresh_identity().await?.map(Arc::new);
        if refreshed.is_some() {
            self.current_connection.store(refreshed.clone());
        }
        Ok(refreshed)
    }

    /// Drops the current connection. The next request opens another.
    pub(crate) fn disconnect(&self) {
        if let Some(connection) = self.current_connection.swap(None) {
            connection.mark_dead();
        }
    }
}
