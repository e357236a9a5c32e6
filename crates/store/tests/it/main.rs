//! The store against a real PostgreSQL.

mod accounts;
mod keys;
mod outage;
mod outbox;
mod pauses;
mod roll_up;
mod schema;
mod stage;
