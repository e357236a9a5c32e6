//! A server with a migrated database, and accounts and keys in it.

use std::time::Duration;

use domain::account::{Email, KeyName};
use domain::{BURST_WINDOW_S, Change, ClearKey, Key, KeyId, Pause, Scope, Standing};
use store::{Account, By, Refused, Store, StoreError, StoreOptions};
use testkit::{Postgres, PostgresOptions};

/// Long enough that a busy machine never makes a statement late.
pub const PATIENCE: Duration = Duration::from_secs(20);
const DATABASE: &str = "house";

pub struct Stage {
    pub postgres: Postgres,
    pub store: Store,
}

impl Stage {
    pub async fn open() -> Self {
        let stage = Self::unmigrated().await;
        stage.store.migrate().await.expect("a schema");
        stage
    }

    pub async fn unmigrated() -> Self {
        let postgres = Postgres::start(PostgresOptions::default()).await.expect("a cluster");
        postgres.create_database(DATABASE).await.expect("a database");
        let store = node(&postgres, PATIENCE);
        Self { postgres, store }
    }

    /// A store that comes as this role.
    pub fn store_as(&self, role: &str) -> Store {
        let url = self.postgres.url(DATABASE).replace("postgres@", &format!("{role}@"));
        let (application_name, connections_max, timeout) = ("test", 10, PATIENCE);
        Store::new(&StoreOptions { url, application_name, connections_max, timeout }).expect("a store")
    }

    pub async fn sql(&self, sql: &str) -> String {
        self.postgres.psql(DATABASE, sql).await.expect("rows")
    }

    /// What PostgreSQL says to a statement that it refuses.
    pub async fn refusal(&self, sql: &str) -> String {
        self.postgres.psql(DATABASE, sql).await.expect_err("a refusal").to_string()
    }

    pub async fn account(&self) -> Account {
        let address = email(&format!("member{}@house.example", fastrand::u64(..)));
        self.store.create_account(&address, "free").await.expect("an account")
    }

    /// A key of an account of its own.
    pub async fn key(&self) -> Key {
        self.key_of(&self.account().await).await
    }

    pub async fn key_of(&self, account: &Account) -> Key {
        let key = mint();
        self.store.issue(account, By::Owner(account.id), &name("a key"), Scope::Geo, &key).await.expect("a key");
        key
    }

    /// A session of the account, opened with this digest.
    pub async fn session_of(&self, account: &Account, digest: [u8; 32]) -> i64 {
        self.store.open_session(account.id, &digest, "Firefox on Linux").await.expect("a session")
    }

    pub async fn standing(&self, id: KeyId) -> Standing {
        self.store.find_standing(id).await.expect("an answer").expect("a standing")
    }

    /// Rows of the outbox: key and generation, oldest first.
    pub async fn outbox(&self) -> Vec<String> {
        self.sql("select key_id || ' ' || generation from outbox order by id")
            .await
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// Another node's store on the same database.
pub fn node(postgres: &Postgres, timeout: Duration) -> Store {
    let url = postgres.url(DATABASE);
    Store::new(&StoreOptions { url, application_name: "test", connections_max: 10, timeout }).expect("a store")
}

pub fn mint() -> Key {
    ClearKey::mint(|| fastrand::u8(..)).key()
}

/// A digest like no other.
pub fn digest() -> [u8; 32] {
    std::array::from_fn(|_| fastrand::u8(..))
}

/// The wish that the store did not grant.
pub fn refused<T>(outcome: Result<T, StoreError>) -> Refused {
    match outcome {
        Err(StoreError::Refused(refused)) => refused,
        Err(error) => panic!("not refused: {error:?}"),
        Ok(_) => panic!("not refused"),
    }
}

pub fn email(text: &str) -> Email {
    Email::parse(text).expect("an address")
}

pub fn name(text: &str) -> KeyName {
    KeyName::parse(text).expect("a name")
}

pub fn pause(key: KeyId, window: u64) -> Pause {
    let mut counts = [0; BURST_WINDOW_S as usize];
    counts[59] = 301;
    Pause { key, window, at_ms: 1_800_000_000_123, counts }
}

/// The standing that a change brings.
pub fn standing_of(change: Change) -> Standing {
    match change {
        Change::Stands(standing) => standing,
        Change::Gone(id) => panic!("{id} is gone"),
    }
}
