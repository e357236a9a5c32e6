//! One Redis server and the current connection to it.
//!
//! There are no automatic retries here: a charge that is sent twice is charged twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant as StdInstant};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use ipseity_domain::{BURST_WINDOW_S, is_mutant};
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::LedgerError;
use crate::ledger_time::LedgerTime;
use crate::redis::breaker::Breaker;
use crate::redis::clock::{FALL_VALID, ServerClock};
use crate::redis::connection::RedisConnection;
use crate::redis::identity::{DataSet, TrustedStores};
use crate::redis::tls::RedisTls;

/// Closes a connection whose data is not acknowledged. A slow or frozen server still acknowledges data, and keeps its
/// connection.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for connecting. It may exceed the deadline of the request that started it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Called with the address of a server after a connection to it was opened. The connection is used once this returns
/// `true`, for example when all changes of keys are applied to that server. Otherwise the next request opens another.
pub type ConnectGate = Arc<dyn Fn(String) -> BoxFuture<'static, bool> + Send + Sync>;

/// What all servers of a handle share.
pub(crate) struct NodeSettings {
    pub(crate) connect_gate: Option<ConnectGate>,
    pub(crate) tls: RedisTls,
    pub(crate) breaker_failures_max: u32,
    pub(crate) trusted: Arc<TrustedStores>,
    /// Number of steps of a server's clock.
    pub(crate) clock_steps: AtomicU64,
    /// The clocks of all servers count from here, so that they can be compared.
    pub(crate) start: StdInstant,
    /// The most that the burst window is shortened after a clock was set back.
    pub(crate) clock_fall_max: Duration,
    pub(crate) owner_change: StdMutex<Option<OwnerChange>>,
}

/// A slot got another owner.
#[derive(Clone, Copy)]
pub(crate) struct OwnerChange {
    at: StdInstant,
    /// The latest bound of the clocks of all owners before.
    upper_ms: u64,
}

impl NodeSettings {
    /// Notes that slots have other owners than these now. Their logs have times by the clocks of these.
    pub(crate) fn note_owner_change(&self, old_owners: &[Arc<RedisNode>]) {
        let at = StdInstant::now();
        let upper_ms = |owner: &Arc<RedisNode>| Some(owner.clock.bounds_ms()?.1 + owner.clock.fallen_ms(at));
        if let Some(upper_ms) = old_owners.iter().filter_map(upper_ms).max() {
            let mut change = self.owner_change.lock().unwrap_or_else(PoisonError::into_inner);
            let earlier = change.filter(|change| at - change.at <= FALL_VALID).map_or(0, |change| change.upper_ms);
            *change = Some(OwnerChange { at, upper_ms: upper_ms.max(earlier) });
        }
    }

    /// How far a clock may be behind the owner that a slot had in the last minute.
    fn behind_old_owner_ms(&self, clock: &ServerClock, now: StdInstant) -> u64 {
        let change = *self.owner_change.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(change) = change.filter(|change| now - change.at <= FALL_VALID) else { return 0 };
        clock.bounds_ms().map_or(0, |(lower_ms, _)| change.upper_ms.saturating_sub(lower_ms))
    }
}

pub(crate) struct RedisNode {
    client: Client,
    settings: Arc<NodeSettings>,
    pub(crate) breaker: Breaker,
    pub(crate) clock: ServerClock,
    current_connection: ArcSwapOption<RedisConnection>,
    /// Held by the task that connects. Other requests wait for it.
    connecting: Arc<Mutex<()>>,
}

impl RedisNode {
    pub(crate) fn new(info: ConnectionInfo, settings: Arc<NodeSettings>) -> Result<Self, LedgerError> {
        // Only with RESP3 does the client library report a lost connection before the next request fails.
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = TcpSettings::default().set_nodelay(true).set_user_timeout(TCP_USER_TIMEOUT);
        let client = settings.tls.open_client(info.set_redis_settings(resp3).set_tcp_settings(tcp))?;
        Ok(Self {
            client,
            breaker: Breaker::new(settings.breaker_failures_max),
            clock: ServerClock::new(settings.start, 1),
            settings,
            current_connection: ArcSwapOption::empty(),
            connecting: Arc::default(),
        })
    }

    /// Corrects the clock by a reply.
    pub(crate) fn sync_clock(&self, now: LedgerTime, sent: StdInstant, received: StdInstant) {
        if self.clock.sync(now, sent, received) {
            self.settings.clock_steps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The burst window in milliseconds, less what the clock may have been set back in the last minute: times before that
    /// look later than they were, and must not pause a key.
    pub(crate) fn burst_window_ms(&self) -> u64 {
        if is_mutant("clock-falls-ignored") {
            return BURST_WINDOW_S * 1000;
        }
        let now = StdInstant::now();
        let fallen_ms = self.clock.fallen_ms(now) + self.settings.behind_old_owner_ms(&self.clock, now);
        let max_ms = u64::try_from(self.settings.clock_fall_max.as_millis()).unwrap_or(u64::MAX);
        (BURST_WINDOW_S * 1000).saturating_sub(fallen_ms.min(max_ms))
    }

    /// The data sets that this process trusts.
    pub(crate) fn trusted(&self) -> &TrustedStores {
        &self.settings.trusted
    }

    pub(crate) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// Another server of the same cluster, with the same credentials and the same encryption.
    pub(crate) fn sibling(&self, address: ConnectionAddr) -> Result<Self, LedgerError> {
        Self::new(self.client.get_connection_info().clone().set_addr(address), Arc::clone(&self.settings))
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

    /// The data set of the server, if there is a connection.
    pub(crate) fn data_set(&self) -> Option<DataSet> {
        self.live_connection().map(|connection| connection.identity.data_set)
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
            let sent = StdInstant::now();
            let opened = timeout(CONNECT_TIMEOUT, RedisConnection::open(&node.client, &node.settings.trusted))
                .await
                .map_err(|_late| LedgerError::Unreachable)?;
            let (connection, now) = opened.map_err(LedgerError::NotApplied)?;
            // Not `sync_clock`: until now this was the clock of the node.
            node.clock.sync(now, sent, StdInstant::now());
            if let Some(connect_gate) = &node.settings.connect_gate
                && !is_mutant("no-gate-on-new-connections")
                && !connect_gate(node.address().to_string()).await
            {
                return Err(LedgerError::Unreachable);
            }
            let connection = Arc::new(connection);
            node.current_connection.store(Some(Arc::clone(&connection)));
            Ok(connection)
        });
        connecting.await.unwrap_or(Err(LedgerError::Unreachable))
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
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
