//! Email tokens, the email queue and alerts.

pub(crate) mod alerts;
pub(crate) mod queue;
pub(crate) mod tokens;
