//! Background tasks of a node.

pub(crate) mod acme;
pub(crate) mod blocked_networks;
pub(crate) mod certificates;
pub(crate) mod charge_gate;
pub(crate) mod heartbeat;
pub(crate) mod outbox;
pub(crate) mod outcome_counter;
pub(crate) mod periodic;
pub(crate) mod recovery;
pub(crate) mod retention;
pub(crate) mod sealing_keys;
pub(crate) mod usage_flush;
