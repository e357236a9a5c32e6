//! Attempts that an application does not want to be repeated quickly.

/// Extension of a response: the key is missing or unknown, or a page returned an error, such as after too many attempts to sign
/// in. A connection with many of them is slowed down.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt;
