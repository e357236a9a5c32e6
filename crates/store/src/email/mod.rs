//! Email tokens, requests for them, the email queue, notices and alerts.

pub(crate) mod alerts;
pub(crate) mod notices;
pub(crate) mod queue;
pub(crate) mod requests;
pub(crate) mod tokens;
