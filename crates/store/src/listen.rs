//! Listening: whoever waits for a change of the database is woken by it.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::access::{Accounts, EmailQueue, Keys, Outbox};
use crate::error::StoreError;
use crate::pool::Store;

const OUTBOX_CHANNEL: &str = "ipseity_outbox";
const ACCOUNT_CHANNEL: &str = "ipseity_account";
const EMAIL_CHANNEL: &str = "ipseity_mail";
/// Between a connection that was lost and the next.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// Silence is questioned after this many times the time for a statement: a connection can be dead without anybody saying so.
const PING_AFTER_TIMEOUTS: u32 = 10;

impl Outbox<'_> {
    /// Listens for changes of keys' standings.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen(self) -> Result<WakeListener, StoreError> {
        Ok(WakeListener(self.store.open_channel_listener(OUTBOX_CHANNEL).await?))
    }
}

impl Keys<'_> {
    /// Listens for news of keys.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen(self) -> Result<KeyEvents, StoreError> {
        Ok(KeyEvents(self.store.open_channel_listener(OUTBOX_CHANNEL).await?))
    }
}

impl EmailQueue<'_> {
    /// Listens for mails that wait to be sent.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen(self) -> Result<WakeListener, StoreError> {
        Ok(WakeListener(self.store.open_channel_listener(EMAIL_CHANNEL).await?))
    }
}

impl Accounts<'_> {
    /// Listens for accounts whose keys have changed or whose sessions have ended.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen(self) -> Result<AccountEvents, StoreError> {
        Ok(AccountEvents(self.store.open_channel_listener(ACCOUNT_CHANNEL).await?))
    }
}

impl Store {
    async fn open_channel_listener(&self, channel: &'static str) -> Result<ChannelListener, StoreError> {
        Ok(ChannelListener { store: self.clone(), channel, listener: Some(self.connect_listener(channel).await?) })
    }

    /// On a connection of its own: one from the pool may be dead without knowing it.
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
    /// Absent after its connection was lost.
    listener: Option<PgListener>,
}

enum ListenEvent {
    /// Something was said.
    Notification(String),
    /// Nothing was said for as long as patience lasted.
    TimedOut,
    /// The connection was lost or made again: something may have been missed.
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

    /// Lets go of a connection whose other end does not answer.
    async fn ping_or_disconnect(&mut self) {
        if let Some(listener) = &mut self.listener
            && self.store.with_timeout(sqlx::query("select 1").execute(listener)).await.is_err()
        {
            self.listener = None;
        }
    }
}

/// Tells of every change of a key, for whoever remembers keys.
pub struct KeyEvents(ChannelListener);

impl KeyEvents {
    /// Returns when a key has changed.
    ///
    /// # Errors
    /// When the connection was lost: something may have been missed.
    pub async fn wait(&mut self) -> Result<(), StoreError> {
        loop {
            match self.0.recv(self.0.store.timeout).await? {
                ListenEvent::Notification(_) => return Ok(()),
                ListenEvent::TimedOut => self.0.ping_or_disconnect().await,
                ListenEvent::Interrupted => return Err(sqlx::Error::WorkerCrashed.into()),
            }
        }
    }
}

/// Wakes the relay when the outbox has grown, or the mailer when a mail waits.
pub struct WakeListener(ChannelListener);

impl WakeListener {
    /// Returns when something has changed, when the connection was lost or made again and may have missed something, or after `patience`.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn wait(&mut self, timeout: Duration) -> Result<(), StoreError> {
        match self.0.recv(timeout).await? {
            ListenEvent::Notification(_) | ListenEvent::TimedOut | ListenEvent::Interrupted => Ok(()),
        }
    }
}

/// Wakes the pages of an account when they may have changed.
pub struct AccountEvents(ChannelListener);

/// Whose pages may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountEvent {
    /// Those of the account with this number.
    Changed(i64),
    /// Anyone's: the connection was lost or made again, and something may have been missed.
    Resync,
}

impl AccountEvents {
    /// Returns when an account's pages may have changed. A lost connection is made again by the next call, after a short pause.
    ///
    /// # Errors
    /// When PostgreSQL is away.
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
