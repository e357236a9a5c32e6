//! Accounts, keys, pauses, usage and sites, stored in PostgreSQL, which is the source of truth for them.
//!
//! [`Store`] is the entry point. Its accessors group the methods by concept, such as [`Keys`], [`Accounts`],
//! [`EmailTokens`] and [`Usage`]: `store.keys().create(…)`.
//!
//! Guarantees:
//! - A change of a key record commits together with its [`Outbox`] row. The outbox worker applies it to Redis, even if
//!   the process that made the change has died.
//! - Usage counts are absolute. Merging one twice or late does not change the result.
//! - A frozen server delays a statement by [`StoreOptions::timeout`] at most. Migrations and listeners are exempt.
//! - A frozen or unreachable process blocks others for a few seconds at most: PostgreSQL ends its open transactions.
//! - Secrets are stored only as digests or password hashes.
//!
//! A request whose key is in Redis does not use this crate.

mod access;
mod accounts;
mod alerts;
mod audit;
mod console;
mod deployment;
mod diagnostics;
mod email;
mod error;
mod keys;
mod limit_requests;
mod listen;
mod nodes;
mod operators;
mod pool;
mod retention;
mod servers;
mod sites;
mod url;
mod usage;

pub use access::{
    Accounts, AlertChannels, AlertQueue, AuditLog, ConsoleQueries, Devices, EmailQueue, EmailRequests, EmailTokens,
    Identities, Keys, LimitRequests, Nodes, NoticeQueue, Operators, Outbox, Passkeys, PersonalTokens, Plans,
    SecurityLog, Sessions, Sites, StoreDeployment, TwoFactor, Usage, WebauthnStates,
};
pub use accounts::Account;
pub use accounts::credentials::Credentials;
pub use accounts::identities::{LinkedIdentity, NewIdentity};
pub use accounts::passkeys::{FoundPasskey, StoredPasskey};
pub use accounts::personal_tokens::{AuthenticatedToken, NewToken, TokenSummary};
pub use accounts::security_log::{SecurityEvent, SecurityEventRow};
pub use accounts::sessions::{
    AuthenticatedAccount, DeviceSummary, NewSession, SessionLimits, SessionStart, SessionSummary,
};
pub use accounts::two_factor::{SecondFactors, TotpState};
pub use alerts::channels::{AlertChannel, AlertChannelKind, PREVIOUS_SECRET_HOURS};
pub use alerts::claim::{AlertClaim, AlertDetails, AlertTarget, EMAIL_CLAIM, QueuedAlert};
pub use alerts::kind::AlertKind;
pub use alerts::log::{AlertDelivery, AlertDeliveryState};
pub use alerts::preferences::EMAIL_ALERTS;
pub use alerts::queue::EXPIRY_ALERT_DAYS;
pub use audit::{AuditEvent, AuditFilter, AuditHorizon};
pub use console::overview::{ApproximateCount, ConsoleOverview};
pub use console::refusals::DailyRefusals;
pub use console::search::FoundAccount;
pub use console::sign_ups::DailySignUps;
pub use console::unsent_emails::{UnsentEmail, UnsentEmailState, UnsentQueue};
pub use deployment::StoreIdentity;
pub use diagnostics::PostgresServerInfo;
pub use email::notices::{QueuedNotice, RESTORE_EMAIL_DAYS};
pub use email::queue::{QueuedEmail, QueuedEmailKind};
pub use email::tokens::{EmailToken, EmailTokenKind};
pub use error::{StoreError, StoreRefusal};
pub use keys::audit::{Actor, HistoryRow};
pub use keys::leaks::LeakedKey;
pub use keys::outbox::OutboxRow;
pub use keys::pauses::RecordedPause;
pub use keys::search::FoundKey;
pub use keys::summary::{KeySummary, PauseEvidence};
pub use limit_requests::{LIMIT_REQUEST_CHARS_MAX, LimitDecision, LimitRequest, LimitRequestState, NewLimitRequest};
pub use listen::{AccountEvent, AccountEvents, KeyEvent, KeyEvents, OutboxEvent, OutboxListener, WakeListener};
pub use nodes::{NodeHeartbeat, NodeRole, NodeSummary};
pub use operators::credentials::{NewCredential, OperatorCredential, OperatorPasskey};
pub use operators::links::{OperatorLink, Redemption};
pub use operators::sessions::{AuthenticatedOperator, OperatorSessionLimits};
pub use operators::{Operator, OperatorName, OperatorRole, OperatorSummary};
pub use pool::{SchemaStatus, Store, StoreOptions};
pub use retention::RetentionPolicy;
pub use servers::{NO_PRIMARY, PostgresRole, PostgresServer};
pub use sites::Site;
pub use url::InvalidStoreUrl;
pub use usage::columns::RefusalReason;
pub use usage::hours::HourRow;
pub use usage::rows::UsageRow;
pub use usage::{KeyDailyUsage, RefusalCount};
