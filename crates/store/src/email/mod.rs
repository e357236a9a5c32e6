//! Email tokens, requests for them, the email queue and notices.

pub(crate) mod notices;
pub(crate) mod queue;
pub(crate) mod requests;
pub(crate) mod tokens;
