//! A connection to one Redis server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError};

use crate::ledger_time::LedgerTime;
use crate::redis::batch::BatchHandle;
use crate::redis::identity::{Incarnation, ServerIdentity, TrustedStores};

/// A connection, shared by all requests, and the identity of its server.
pub(crate) struct RedisConnection {
    pub(crate) conn: MultiplexedConnection,
    pub(crate) identity: ServerIdentity,
    pub(crate) batcher: BatchHandle,
    trusted: Arc<TrustedStores>,
    dead: Arc<AtomicBool>,
}

impl RedisConnection {
    /// Connects. Returns the server's time too.
    pub(crate) async fn open(client: &Client, trusted: &Arc<TrustedStores>) -> Result<(Self, LedgerTime), RedisError> {
        let dead = Arc::new(AtomicBool::new(false));
        let dead_flag = Arc::clone(&dead);
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                dead_flag.store(true, Ordering::Release);
            }
            Ok::<_, redis::aio::SendError>(())
        });
        let mut conn = client.get_multiplexed_async_connection_with_config(&config).await?;
        let (identity, now) = ServerIdentity::fetch(&mut conn).await?;
        Ok((Self::new(conn, identity, Arc::clone(trusted), dead), now))
    }

    fn new(
        conn: MultiplexedConnection,
        identity: ServerIdentity,
        trusted: Arc<TrustedStores>,
        dead: Arc<AtomicBool>,
    ) -> Self {
        let batcher = BatchHandle::start(conn.clone(), identity, Arc::clone(&trusted));
        Self { conn, identity, batcher, trusted, dead }
    }

    /// Reads the server's identity again. Returns the same connection with the new identity if it has changed.
    pub(crate) async fn refresh_identity(&self) -> Result<Option<Self>, RedisError> {
        let (identity, _) = ServerIdentity::fetch(&mut self.conn.clone()).await?;
        let is_changed = identity != self.identity;
        Ok(is_changed
            .then(|| Self::new(self.conn.clone(), identity, Arc::clone(&self.trusted), Arc::clone(&self.dead))))
    }

    /// What a trusted record starts with.
    pub(crate) fn incarnation(&self) -> Incarnation {
        Incarnation::new(self.identity.data_set, &self.trusted)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Marks the connection as unusable. The next request opens another.
    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }
}
