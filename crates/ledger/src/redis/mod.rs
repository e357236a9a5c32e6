//! Connections to Redis: one server, a primary with replicas, or a cluster.

pub(crate) mod batch;
pub(crate) mod breaker;
pub(crate) mod clock;
pub(crate) mod connection;
pub(crate) mod identity;
pub(crate) mod node;
pub(crate) mod redirect;
pub(crate) mod router;
pub(crate) mod sentinel;
pub(crate) mod slot_map;
pub(crate) mod subscription;
pub(crate) mod tls;
