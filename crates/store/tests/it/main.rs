//! The store against a real PostgreSQL.

mod accounts;
mod alerts;
mod farewell;
mod history;
mod key_rows;
mod keys;
mod letters;
mod links;
mod listen;
mod members;
mod months;
mod outage;
mod outbox;
mod owners;
mod passkeys;
mod pauses;
mod roll_up;
mod schema;
mod sessions;
mod stage;
mod tickets;
mod usage;
