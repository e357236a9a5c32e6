//! What operators see in the admin console: search, counts, and what waits. Every query uses indexes, also with a million keys.

pub(crate) mod overview;
pub(crate) mod refusals;
pub(crate) mod search;
pub(crate) mod sign_ups;
pub(crate) mod unsent_emails;
