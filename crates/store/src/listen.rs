//! Notifications about changes in the database (LISTEN).

use std::time::Duration;

use ipseity_domain::KeyId;
use sqlx::postgres::{PgListener, PgNotification, PgPoolOptions};

use crate::access::{Accounts, EmailQueue, Keys, Outbox};
use crate::error::StoreError;
use crate::pool::Store;
use crate::servers::address;

const OUTBOX_CHANNEL: &str = "ipseity_outbox";
const DEPLOYMENT_CHANNEL: &str = "ipseity_deployment";
const ACCOUNT_CHANNEL: &str = "ipseity_account";
const EMAIL_CHANNEL: &str = "ipseity_mail";
/// Wait before a lost connection is replaced.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

impl Outbox<'_> {
    /// Listens for new rows in the outbox, and for nodes that use another Redis.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<OutboxListener, StoreError> {
        Ok(OutboxListener(self.store.open_channel_listener(&[OUTBOX_CHANNEL, DEPLOYMENT_CHANNEL]).await?))
    }
}

impl Keys<'_> {
    /// Listens for changes of keys.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<KeyEvents, StoreError> {
        Ok(KeyEvents(self.store.open_channel_listener(&[OUTBOX_CHANNEL]).await?))
    }
}

impl EmailQueue<'_> {
    /// Listens for new emails in the queue.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<WakeListener, StoreError> {
        Ok(WakeListener(self.store.open_channel_listener(&[EMAIL_CHANNEL]).await?))
    }
}

impl Accounts<'_> {
    /// Listens for accounts whose keys have changed or whose sessions have ended.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<AccountEvents, StoreError> {
        Ok(AccountEvents(self.store.open_channel_listener(&[ACCOUNT_CHANNEL]).await?))
    }
}

impl Store {
    async fn open_channel_listener(&self, channels: &'static [&'static str]) -> Result<ChannelListener, StoreError> {
        Ok(ChannelListener { store: self.clone(), channels, connection: Some(self.connect_listener(channels).await?) })
    }

    /// Opens a dedicated connection, because a pooled one may be dead.
    async fn connect_listener(&self, channels: &[&str]) -> Result<ListenConnection, StoreError> {
        let connect = async {
            let options = self.pool.connect_options();
            let pool_options = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
            let pool = pool_options.acquire_timeout(self.timeout).connect_lazy_with(options.as_ref().clone());
            Ok::<_, sqlx::Error>((PgListener::connect_with(&pool).await?, address(&options)))
        };
        let (mut listener, server) = self.with_timeout(connect).await?;
        listener.eager_reconnect(false);
        self.with_timeout(listener.listen_all(channels.iter().copied())).await?;
        Ok(ListenConnection { listener, server })
    }
}

struct ListenConnection {
    listener: PgListener,
    /// With several servers, an old primary may keep the connection open after another one was chosen.
    server: String,
}

struct ChannelListener {
    store: Store,
    channels: &'static [&'static str],
    /// `None` after the connection was lost.
    connection: Option<ListenConnection>,
}

enum ListenEvent {
    /// A notification.
    Notification(PgNotification),
    /// No notification arrived in time.
    TimedOut,
    /// The connection was lost or replaced. Notifications may have been missed.
    Interrupted,
}

impl ChannelListener {
    async fn recv(&mut self, timeout: Duration) -> Result<ListenEvent, StoreError> {
        let primary = address(&self.store.pool.connect_options());
        let Some(connection) = self.connection.as_mut().filter(|connection| connection.server == primary) else {
            self.connection = Some(self.store.connect_listener(self.channels).await?);
            return Ok(ListenEvent::Interrupted);
        };
        match tokio::time::timeout(timeout, connection.listener.try_recv()).await {
            Ok(Ok(Some(notification))) => Ok(ListenEvent::Notification(notification)),
            Ok(Ok(None) | Err(_)) => {
                self.connection = None;
                Ok(ListenEvent::Interrupted)
            }
            Err(_elapsed) => Ok(ListenEvent::TimedOut),
        }
    }

    /// Drops the connection if it does not respond.
    async fn ping_or_disconnect(&mut self) {
        if let Some(connection) = &mut self.connection
            && self.store.with_timeout(sqlx::query("select 1").execute(&mut connection.listener)).await.is_err()
        {
            self.connection = None;
        }
    }
}

/// Reports which keys have changed, for caches of key records.
pub struct KeyEvents(ChannelListener);

/// Which keys have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// The key with this id.
    Changed(KeyId),
    /// Any key: the notification names none.
    Resync,
}

impl KeyEvents {
    /// Waits until a key has changed.
    ///
    /// # Errors
    /// If the connection was lost. Changes may have been missed.
    pub async fn wait(&mut self) -> Result<KeyEvent, StoreError> {
        loop {
            match self.0.recv(self.0.store.timeout).await? {
                ListenEvent::Notification(key) => {
                    return Ok(KeyId::parse(key.payload()).map_or(KeyEvent::Resync, KeyEvent::Changed));
                }
                ListenEvent::TimedOut => self.0.ping_or_disconnect().await,
                ListenEvent::Interrupted => return Err(sqlx::Error::WorkerCrashed.into()),
            }
        }
    }
}

/// Wakes the outbox worker.
pub struct OutboxListener(ChannelListener);

/// Why the outbox worker wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxEvent {
    /// There may be new rows, or nothing happened in time.
    Rows,
    /// Nodes change to another Redis, or PostgreSQL was not reachable.
    Deployment,
}

impl OutboxListener {
    /// Waits for a notification or the timeout.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn wait(&mut self, timeout: Duration) -> Result<OutboxEvent, StoreError> {
        Ok(match self.0.recv(timeout).await? {
            ListenEvent::Notification(notification) if notification.channel() == OUTBOX_CHANNEL => OutboxEvent::Rows,
            ListenEvent::TimedOut => OutboxEvent::Rows,
            ListenEvent::Notification(_) | ListenEvent::Interrupted => OutboxEvent::Deployment,
        })
    }
}

/// Wakes the mailer when an email is queued.
pub struct WakeListener(ChannelListener);

impl WakeListener {
    /// Waits for a notification or the timeout. Also returns when the connection was lost or replaced, because
    /// notifications may have been missed.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn wait(&mut self, timeout: Duration) -> Result<(), StoreError> {
        match self.0.recv(timeout).await? {
            ListenEvent::Notification(_) | ListenEvent::TimedOut | ListenEvent::Interrupted => Ok(()),
        }
    }
}

/// Reports which accounts have changed, for live pages.
pub struct AccountEvents(ChannelListener);

/// Which accounts may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountEvent {
    /// The account with this id.
    Changed(i64),
    /// Any account: the connection was lost or replaced, and notifications may have been missed.
    Resync,
}

impl AccountEvents {
    /// Waits until an account may have changed. After a lost connection, the next call reconnects after a short wait.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn wait(&mut self) -> Result<AccountEvent, StoreError> {
        if self.0.connection.is_none() {
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
        loop {
            match self.0.recv(self.0.store.timeout).await? {
                ListenEvent::Notification(account_id) => {
                    return Ok(account_id.payload().parse().map_or(AccountEvent::Resync, AccountEvent::Changed));
                }
                ListenEvent::Interrupted => return Ok(AccountEvent::Resync),
                ListenEvent::TimedOut => self.0.ping_or_disconnect().await,
            }
        }
    }
}
