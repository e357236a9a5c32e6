//! PostgreSQL: where accounts, keys, pauses and usage are true.
//!
//! Deliberately absent: verdicts and counters (the ledger's), and any knowledge of HTTP, mail or passwords beyond what is stored of them.
//! Nothing here is asked on the way of a request whose key the counter store knows.

mod accounts;
mod alerts;
mod error;
mod examine;
mod forget;
mod history;
mod key_rows;
mod keys;
mod letters;
mod listen;
mod members;
mod outbox;
mod passkeys;
mod pauses;
mod pool;
mod search;
mod sessions;
mod standing;
mod tickets;
mod usage;
mod usage_rows;

pub use accounts::Account;
pub use alerts::{AlertKind, AlertLetter};
pub use error::{Refused, StoreError};
pub use examine::Vitals;
pub use forget::Keep;
pub use history::{By, HistoryRow};
pub use key_rows::{KeyRow, PauseRow};
pub use letters::{Letter, LetterKind};
pub use listen::{AccountWake, KeyNews, Wake, Woken};
pub use members::{AlertSwitches, Credentials};
pub use outbox::Claim;
pub use passkeys::PasskeyRow;
pub use pool::{Store, StoreOptions};
pub use search::{AuditRow, FoundKey};
pub use sessions::{Member, SessionRow};
pub use tickets::{Ticket, TicketKind};
pub use usage::{Refused as RefusedCount, RefusedReason, RolledUp};
pub use usage_rows::UsageRow;
