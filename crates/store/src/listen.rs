//! Notifications about changes in the database (LISTEN).

use std::time::Duration;

use ipseity_domain::KeyId;
use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::access::{Accounts, EmailQueue, Keys, Outbox};
use crate::error::StoreError;
use crate::pool::Store;

const OUTBOX_CHANNEL: &str = "ipseity_outbox";
const ACCOUNT_CHANNEL: &str = "ipseity_account";
const EMAIL_CHANNEL: &str = "ipseity_mail";
/// Wait before a lost connection is replaced.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// After this many statement timeouts without a notification, the connection is tested, because it may be dead.
const PING_AFTER_TIMEOUTS: u32 = 10;

impl Outbox<'_> {
    /// Listens for new rows in the outbox.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<WakeListener, StoreError> {
        Ok(WakeListener(self.store.open_channel_listener(OUTBOX_CHANNEL).await?))
    }
}

impl Keys<'_> {
    /// Listens for changes of keys.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<KeyEvents, StoreError> {
        Ok(KeyEvents(self.store.open_channel_listener(OUTBOX_CHANNEL).await?))
    }
}

impl EmailQueue<'_> {
    /// Listens for new emails in the queue.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<WakeListener, StoreError> {
        Ok(WakeListener(self.store.open_channel_listener(EMAIL_CHANNEL).await?))
    }
}

impl Accounts<'_> {
    /// Listens for accounts whose keys have changed or whose sessions have ended.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn listen(self) -> Result<AccountEvents, StoreError> {
        Ok(AccountEvents(self.store.open_channel_listener(ACCOUNT_CHANNEL).await?))
    }
}

impl Store {
    async fn open_channel_listener(&self, channel: &'static str) -> Result<ChannelListener, StoreError> {
        Ok(ChannelListener { store: self.clone(), channel, listener: Some(self.connect_listener(channel).await?) })
    }

    /// Opens a dedicated connection, because a pooled one may be dead.
    async fn connect_listener(&self, channel: &str) -> Result<PgListener, StoreError> {
        let options = self.pool.connect_options().as_ref().clone();
        let pool_options = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = pool_options.acquire_timeout(self.timeout).connect_lazy_with(options);
        let mut listener = self.with_timeout(PgListener::connect_with(&pool)).await?;
        listener.eager_reconnect(false);
        self.with_timeout(listener.listen(channel)).await?;
        Ok(listener)
    }
}

struct ChannelListener {
    store: Store,
    channel: &'static str,
    /// `None` after the connection was lost.
    listener: Option<PgListener>,
}

enum ListenEvent {
    /// A notification with its payload.
    Notification(String),
    /// No notification arrived in time.
    TimedOut,
    /// The connection was lost or replaced. Notifications may have been missed.
    Interrupted,
}

impl ChannelListener {
    async fn recv(&mut self, timeout: Duration) -> Result<ListenEvent, StoreError> {
        let Some(listener) = &mut self.listener else {
            self.listener = Some(self.store.connect_listener(self.channel).await?);
            return Ok(ListenEvent::Interrupted);
        };
        match tokio::time::timeout(timeout, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => Ok(ListenEvent::Notification(notification.payload().to_owned())),
            Ok(Ok(None) | Err(_)) => {
                self.listener = None;
                Ok(ListenEvent::Interrupted)
            }
            Err(_elapsed) => Ok(ListenEvent::TimedOut),
        }
    }

    /// Drops the connection if it does not respond.
    async fn ping_or_disconnect(&mut self) {
        if let Some(listener) = &mut self.listener
            && self.store.with_timeout(sqlx::query("select 1").execute(listener)).await.is_err()
        {
            self.listener = None;
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
                    return Ok(KeyId::parse(&key).map_or(KeyEvent::Resync, KeyEvent::Changed));
                }
                ListenEvent::TimedOut => self.0.ping_or_disconnect().await,
                ListenEvent::Interrupted => return Err(sqlx::Error::WorkerCrashed.into()),
            }
        }
    }
}

/// Wakes the outbox worker when the outbox has new rows, or the mailer when an email is queued.
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
        if self.0.listener.is_none() {
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
        loop {
            match self.0.recv(self.0.store.timeout * PING_AFTER_TIMEOUTS).await? {
                ListenEvent::Notification(account_id) => {
                    return Ok(account_id.parse().map_or(AccountEvent::Resync, AccountEvent::Changed));
                }
                ListenEvent::Interrupted => return Ok(AccountEvent::Resync),
                ListenEvent::TimedOut => self.0.ping_or_disconnect().await,
            }
        }
    }
}
