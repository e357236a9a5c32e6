//! Tests of admission under faults, with real PostgreSQL and Redis servers behind fault proxies. Requests enter through
//! [`ipseity_api::PublicService`], as on a node.

mod breaker;
mod burst_limit;
mod fixture;
mod late_delivery;
mod lost_reply;
mod restrictions;
mod revocation;
mod unknown_keys;
