//! A PostgreSQL server with a migrated database, and helpers to create accounts and keys.

use std::time::Duration;

use ipseity_domain::account::{EmailAddress, KeyName};
use ipseity_domain::{
    ApiKey, BURST_WINDOW_S, KeyChange, KeyId, KeyPause, KeyRecord, PlaintextKey, Restrictions, Scope,
};
use ipseity_store::{
    Account, Actor, NewSession, SessionLimits, SessionStart, Store, StoreError, StoreOptions, StoreRefusal,
};
use ipseity_testkit::{Postgres, PostgresOptions, TestClock};

/// Long enough for every statement, even on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);
pub const DATABASE: &str = "ipseity_test";
/// Emails of a kind per address.
pub const EMAILS_PER_HOUR_MAX: u32 = 5;

pub struct StoreFixture {
    pub postgres: Postgres,
    pub store: Store,
}

/// Limits of sessions with this idle timeout.
pub const fn session_limits(idle_timeout: Duration) -> SessionLimits {
    SessionLimits {
        idle_timeout,
        lifetime_max: Duration::from_secs(90 * 86_400),
        recent_period: Duration::from_secs(900),
    }
}

impl StoreFixture {
    pub async fn open() -> Self {
        let fixture = Self::unmigrated().await;
        fixture.store.migrate().await.expect("migrations succeed");
        fixture
    }

    /// With a clock that the test advances.
    pub async fn with_clock(clock: &TestClock) -> Self {
        let options = PostgresOptions { clock: Some(clock.clone()), ..PostgresOptions::default() };
        let fixture = Self::start(options).await;
        fixture.store.migrate().await.expect("migrations succeed");
        fixture
    }

    pub async fn unmigrated() -> Self {
        Self::start(PostgresOptions::default()).await
    }

    async fn start(options: PostgresOptions) -> Self {
        let postgres = Postgres::start(options).await.expect("PostgreSQL starts");
        postgres.create_database(DATABASE).await.expect("database is created");
        let store = open_store(&postgres, TEST_TIMEOUT);
        Self { postgres, store }
    }

    /// A store that connects with a role that has only the rights of a node.
    pub async fn node_store(&self) -> Store {
        self.sql("create role clerk login in role ipseity_node").await;
        self.store_as("clerk")
    }

    /// A store that connects with this role.
    pub fn store_as(&self, role: &str) -> Store {
        let url = self.postgres.url(DATABASE).replace("postgres@", &format!("{role}@"));
        let (application_name, connections_max, timeout) = ("test", 10, TEST_TIMEOUT);
        Store::new(&StoreOptions { url, application_name, operator: None, token: None, connections_max, timeout })
            .expect("options are valid")
    }

    pub async fn sql(&self, sql: &str) -> String {
        self.postgres.psql(DATABASE, sql).await.expect("statement succeeds")
    }

    /// The error of a statement that PostgreSQL rejects.
    pub async fn sql_error(&self, sql: &str) -> String {
        self.postgres.psql(DATABASE, sql).await.expect_err("statement is rejected").to_string()
    }

    pub async fn create_account(&self) -> Account {
        let address = email(&format!("member{}@ipseity.example", fastrand::u64(..)));
        self.store.accounts().create(&address, "free").await.expect("account is created")
    }

    /// A key of a new account.
    pub async fn create_key(&self) -> ApiKey {
        self.create_key_for(&self.create_account().await).await
    }

    pub async fn create_key_for(&self, account: &Account) -> ApiKey {
        let key = generate_key();
        self.store
            .keys()
            .create(account, Actor::Owner(account.id), &key_name("a key"), Scope::Geo, &key, &Restrictions::default())
            .await
            .expect("key is created");
        key
    }

    /// Opens a session of the account with this digest.
    pub async fn open_session_for(&self, account: &Account, digest: [u8; 32]) -> i64 {
        self.open_session_with_label(account, digest, "Firefox on Linux").await
    }

    pub async fn open_session_with_label(&self, account: &Account, digest: [u8; 32], label: &str) -> i64 {
        let session = NewSession {
            account_id: account.id,
            digest: &digest,
            label,
            device_digest: &random_digest(),
            start: SessionStart::Link,
        };
        self.store.sessions().open(&session).await.expect("session is opened")
    }

    /// Adds a passkey in a new session.
    pub async fn add_passkey(&self, account: &Account, credential_id: &[u8]) {
        let session_id = self.open_session_for(account, random_digest()).await;
        let passkeys = self.store.passkeys();
        passkeys.add(account.id, session_id, credential_id, "phone", &true.into()).await.expect("passkey is added");
    }

    pub async fn key_record(&self, id: KeyId) -> KeyRecord {
        self.store.keys().find_record(id).await.expect("query succeeds").expect("key exists")
    }

    /// The rows of the outbox: key and generation, oldest first.
    pub async fn outbox_rows(&self) -> Vec<String> {
        self.sql("select key_id || ' ' || generation from outbox order by id")
            .await
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// Another store with the same database, like that of another node.
pub fn open_store(postgres: &Postgres, timeout: Duration) -> Store {
    let url = postgres.url(DATABASE);
    Store::new(&StoreOptions {
        url,
        application_name: "test",
        operator: None,
        token: None,
        connections_max: 10,
        timeout,
    })
    .expect("options are valid")
}

pub fn generate_key() -> ApiKey {
    PlaintextKey::generate(|| fastrand::u8(..)).to_api_key()
}

/// A unique digest.
pub fn random_digest() -> [u8; 32] {
    std::array::from_fn(|_| fastrand::u8(..))
}

/// Returns why the store rejected a request.
pub fn expect_refusal<T>(outcome: Result<T, StoreError>) -> StoreRefusal {
    match outcome {
        Err(StoreError::Refused(refusal)) => refusal,
        Err(error) => panic!("expected a refusal, got {error:?}"),
        Ok(_) => panic!("expected a refusal, got success"),
    }
}

pub fn email(text: &str) -> EmailAddress {
    EmailAddress::parse(text).expect("address parses")
}

pub fn key_name(text: &str) -> KeyName {
    KeyName::parse(text).expect("name parses")
}

pub fn pause(key: KeyId, burst_epoch: u64) -> KeyPause {
    let mut counts = [0; BURST_WINDOW_S as usize];
    counts[59] = 301;
    KeyPause { key, burst_epoch, at_ms: 1_800_000_000_123, counts }
}

/// The record of an updated key.
pub fn updated_record(change: KeyChange) -> KeyRecord {
    match change {
        KeyChange::Updated(record) => record,
        KeyChange::Deleted(id) => panic!("{id} was deleted"),
    }
}
