//! Listening: whoever waits for a change of the database is woken by it.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};

use crate::error::StoreError;
use crate::pool::Store;

const OUTBOX: &str = "ipseity_outbox";
const ACCOUNT: &str = "ipseity_account";
const MAIL: &str = "ipseity_mail";
/// Between a connection that was lost and the next.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Silence is questioned after this many times the time for a statement: a connection can be dead without anybody saying so.
const SILENCE_TIMEOUTS: u32 = 10;

impl Store {
    /// Listens for changes of keys' standings.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen(&self) -> Result<Wake, StoreError> {
        Ok(Wake(self.ear(OUTBOX).await?))
    }

    /// Listens for news of keys.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen_keys(&self) -> Result<KeyNews, StoreError> {
        Ok(KeyNews(self.ear(OUTBOX).await?))
    }

    /// Listens for mails that wait to be sent.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen_mail(&self) -> Result<Wake, StoreError> {
        Ok(Wake(self.ear(MAIL).await?))
    }

    /// Listens for accounts whose keys have changed or whose sessions have ended.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn listen_accounts(&self) -> Result<AccountWake, StoreError> {
        Ok(AccountWake(self.ear(ACCOUNT).await?))
    }

    async fn ear(&self, channel: &'static str) -> Result<Ear, StoreError> {
        Ok(Ear { store: self.clone(), channel, listener: Some(self.listener(channel).await?) })
    }

    /// On a connection of its own: one from the pool may be dead without knowing it.
    async fn listener(&self, channel: &str) -> Result<PgListener, StoreError> {
        let options = self.pool.connect_options().as_ref().clone();
        let alone = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = alone.acquire_timeout(self.timeout).connect_lazy_with(options);
        let mut listener = self.within(PgListener::connect_with(&pool)).await?;
        listener.eager_reconnect(false);
        self.within(listener.listen(channel)).await?;
        Ok(listener)
    }
}

struct Ear {
    store: Store,
    channel: &'static str,
    /// Absent after its connection was lost.
    listener: Option<PgListener>,
}

enum Heard {
    /// Something was said.
    Note(String),
    /// Nothing was said for as long as patience lasted.
    Silence,
    /// The connection was lost or made again: something may have been missed.
    Gap,
}

impl Ear {
    async fn hear(&mut self, patience: Duration) -> Result<Heard, StoreError> {
        let Some(listener) = &mut self.listener else {
            self.listener = Some(self.store.listener(self.channel).await?);
            return Ok(Heard::Gap);
        };
        match tokio::time::timeout(patience, listener.try_recv()).await {
            Ok(Ok(Some(note))) => Ok(Heard::Note(note.payload().to_owned())),
            Ok(Ok(None) | Err(_)) => {
                self.listener = None;
                Ok(Heard::Gap)
            }
            Err(_elapsed) => Ok(Heard::Silence),
        }
    }

    /// Lets go of a connection whose other end does not answer.
    async fn question(&mut self) {
        if let Some(listener) = &mut self.listener
            && self.store.within(sqlx::query("select 1").execute(listener)).await.is_err()
        {
            self.listener = None;
        }
    }
}

/// Tells of every change of a key, for whoever remembers keys.
pub struct KeyNews(Ear);

impl KeyNews {
    /// Returns when a key has changed.
    ///
    /// # Errors
    /// When the connection was lost: something may have been missed.
    pub async fn wait(&mut self) -> Result<(), StoreError> {
        loop {
            match self.0.hear(self.0.store.timeout).await? {
                Heard::Note(_) => return Ok(()),
                Heard::Silence => self.0.question().await,
                Heard::Gap => return Err(sqlx::Error::WorkerCrashed.into()),
            }
        }
    }
}

/// Wakes the relay when the outbox has grown, or the mailer when a mail waits.
pub struct Wake(Ear);

impl Wake {
    /// Returns when something has changed, when the connection was lost or made again and may have missed something, or after `patience`.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn wait(&mut self, patience: Duration) -> Result<(), StoreError> {
        match self.0.hear(patience).await? {
            Heard::Note(_) | Heard::Silence | Heard::Gap => Ok(()),
        }
    }
}

/// Wakes the pages of an account when they may have changed.
pub struct AccountWake(Ear);

/// Whose pages may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Those of the account with this number.
    Account(i64),
    /// Anyone's: the connection was lost or made again, and something may have been missed.
    All,
}

impl AccountWake {
    /// Returns when an account's pages may have changed. A lost connection is made again by the next call, after a short pause.
    ///
    /// # Errors
    /// When PostgreSQL is away.
    pub async fn wait(&mut self) -> Result<Woken, StoreError> {
        if self.0.listener.is_none() {
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
        loop {
            match self.0.hear(self.0.store.timeout * SILENCE_TIMEOUTS).await? {
                Heard::Note(account) => return Ok(account.parse().map_or(Woken::All, Woken::Account)),
                Heard::Gap => return Ok(Woken::All),
                Heard::Silence => self.0.question().await,
            }
        }
    }
}
