//! Changes of API keys: committed in PostgreSQL, then applied to Redis.
//!
//! [`KeyService`] makes every change in the same three steps. It commits the change together with an outbox row,
//! publishes the key record to Redis, and acknowledges the row. If the process dies in between,
//! [`KeyService::apply_outbox`] of any node completes the change.
//!
//! It also copies pauses that only Redis has to PostgreSQL, and checks that PostgreSQL and Redis belong together
//! ([`DeploymentStatus`]). [`StoredKey::status`] is what the next request of a key can expect.

mod activity;
mod deployment;
mod error;
mod guard;
mod metrics;
mod outbox;
mod pauses;
mod service;

pub use activity::{KeyActivity, StoredKey, has_expired};
pub use error::KeyServiceError;
pub use guard::{DeploymentGuard, DeploymentStatus};
pub use metrics::KeyMetrics;
pub use outbox::OutboxRun;
pub use service::{CommittedChange, KeyService};
