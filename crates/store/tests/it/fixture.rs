//! A server with a migrated database, and accounts and keys in it.

use std::time::Duration;

use ipseity_domain::account::{EmailAddress, KeyName};
use ipseity_domain::{ApiKey, BURST_WINDOW_S, KeyChange, KeyId, KeyPause, KeyRecord, PlaintextKey, Scope};
use ipseity_store::{Account, Actor, Store, StoreError, StoreOptions, StoreRefusal};
use ipseity_testkit::{Postgres, PostgresOptions};

/// Long enough that a busy machine never makes a statement late.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);
pub const DATABASE: &str = "ipseity_test";

pub struct StoreFixture {
    pub postgres: Postgres,
    pub store: Store,
}

impl StoreFixture {
    pub async fn open() -> Self {
        let fixture = Self::unmigrated().await;
        fixture.store.migrate().await.expect("a schema");
        fixture
    }

    pub async fn unmigrated() -> Self {
        let postgres = Postgres::start(PostgresOptions::default()).await.expect("a cluster");
        postgres.create_database(DATABASE).await.expect("a database");
        let store = open_store(&postgres, TEST_TIMEOUT);
        Self { postgres, store }
    }

    /// A store that comes as this role.
    pub fn store_as(&self, role: &str) -> Store {
        let url = self.postgres.url(DATABASE).replace("postgres@", &format!("{role}@"));
        let (application_name, connections_max, timeout) = ("test", 10, TEST_TIMEOUT);
        Store::new(&StoreOptions { url, application_name, connections_max, timeout }).expect("a store")
    }

    pub async fn sql(&self, sql: &str) -> String {
        self.postgres.psql(DATABASE, sql).await.expect("rows")
    }

    /// What PostgreSQL says to a statement that it refuses.
    pub async fn sql_error(&self, sql: &str) -> String {
        self.postgres.psql(DATABASE, sql).await.expect_err("a refusal").to_string()
    }

    pub async fn create_account(&self) -> Account {
        let address = email(&format!("member{}@ipseity.example", fastrand::u64(..)));
        self.store.accounts().create(&address, "free").await.expect("an account")
    }

    /// A key of an account of its own.
    pub async fn create_key(&self) -> ApiKey {
        self.create_key_for(&self.create_account().await).await
    }

    pub async fn create_key_for(&self, account: &Account) -> ApiKey {
        let key = generate_key();
        self.store
            .keys()
            .create(account, Actor::Owner(account.id), &key_name("a key"), Scope::Geo, &key)
            .await
            .expect("a key");
        key
    }

    /// A session of the account, opened with this digest.
    pub async fn open_session_for(&self, account: &Account, digest: [u8; 32]) -> i64 {
        self.store.sessions().open(account.id, &digest, "Firefox on Linux").await.expect("a session")
    }

    pub async fn key_record(&self, id: KeyId) -> KeyRecord {
        self.store.keys().find_record(id).await.expect("an answer").expect("a standing")
    }

    /// Rows of the outbox: key and generation, oldest first.
    pub async fn outbox_rows(&self) -> Vec<String> {
        self.sql("select key_id || ' ' || generation from outbox order by id")
            .await
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// Another node's store on the same database.
pub fn open_store(postgres: &Postgres, timeout: Duration) -> Store {
    let url = postgres.url(DATABASE);
    Store::new(&StoreOptions { url, application_name: "test", connections_max: 10, timeout }).expect("a store")
}

pub fn generate_key() -> ApiKey {
    PlaintextKey::generate(|| fastrand::u8(..)).to_api_key()
}

/// A digest like no other.
pub fn random_digest() -> [u8; 32] {
    std::array::from_fn(|_| fastrand::u8(..))
}

/// The wish that the store did not grant.
pub fn expect_refusal<T>(outcome: Result<T, StoreError>) -> StoreRefusal {
    match outcome {
        Err(StoreError::Refused(refusal)) => refusal,
        Err(error) => panic!("not refused: {error:?}"),
        Ok(_) => panic!("not refused"),
    }
}

pub fn email(text: &str) -> EmailAddress {
    EmailAddress::parse(text).expect("an address")
}

pub fn key_name(text: &str) -> KeyName {
    KeyName::parse(text).expect("a name")
}

pub fn pause(key: KeyId, burst_epoch: u64) -> KeyPause {
    let mut counts = [0; BURST_WINDOW_S as usize];
    counts[59] = 301;
    KeyPause { key, burst_epoch, at_ms: 1_800_000_000_123, counts }
}

/// The standing that a change brings.
pub fn updated_record(change: KeyChange) -> KeyRecord {
    match change {
        KeyChange::Updated(record) => record,
        KeyChange::Deleted(id) => panic!("{id} is gone"),
    }
}
