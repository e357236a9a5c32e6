//! Tests of key changes with real PostgreSQL and Redis servers.

mod changes;
mod deployment;
mod fixture;
mod outbox;
