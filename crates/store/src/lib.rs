//! PostgreSQL: where accounts, keys, pauses and usage are true.
//!
//! Deliberately absent: verdicts and counters (the ledger's), and any knowledge of HTTP, mail or passwords beyond what is stored of them.
//! Nothing here is asked on the way of a request whose key the counter store knows.

mod access;
mod accounts;
mod diagnostics;
mod email;
mod error;
mod keys;
mod listen;
mod pool;
mod retention;
mod usage;

pub use access::{
    Accounts, AlertQueue, AuditLog, Devices, EmailQueue, EmailTokens, Keys, Outbox, Passkeys, Plans, Sessions, Usage,
    WebauthnStates,
};
pub use accounts::Account;
pub use accounts::credentials::{AlertPreferences, Credentials};
pub use accounts::passkeys::StoredPasskey;
pub use accounts::sessions::{AuthenticatedAccount, SessionSummary};
pub use diagnostics::PostgresServerInfo;
pub use email::alerts::{AlertKind, QueuedAlert};
pub use email::queue::{QueuedEmail, QueuedEmailKind};
pub use email::tokens::{EmailToken, EmailTokenKind};
pub use error::{StoreError, StoreRefusal};
pub use keys::audit::{Actor, HistoryRow};
pub use keys::outbox::OutboxClaim;
pub use keys::search::{AuditRow, FoundKey};
pub use keys::summary::{KeySummary, PauseEvidence};
pub use listen::{AccountEvent, AccountEvents, KeyEvents, WakeListener};
pub use pool::{Store, StoreOptions};
pub use retention::RetentionPolicy;
pub use usage::rows::UsageRow;
pub use usage::{KeyDailyUsage, RefusalCount, RefusalReason};
