//! Tests of the store with a real PostgreSQL server.

mod accounts;
mod alerts;
mod credentials;
mod deletion;
mod deployment;
mod email_queue;
mod email_tokens;
mod fixture;
mod key_history;
mod key_ownership;
mod key_summaries;
mod keys;
mod listen;
mod migrations;
mod node_role;
mod outage;
mod outbox;
mod partitions;
mod passkeys;
mod pauses;
mod servers;
mod sessions;
mod sites;
mod token_redemption;
mod usage_merge;
mod usage_rows;
