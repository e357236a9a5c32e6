//! Alerts: what owners learn about their keys by email, webhooks and Slack. Triggers queue them, in the same transaction as the
//! event, so no change of a key can forget them.

pub(crate) mod channels;
pub(crate) mod claim;
pub(crate) mod kind;
pub(crate) mod log;
pub(crate) mod preferences;
pub(crate) mod queue;
