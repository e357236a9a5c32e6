//! Plans and limits.

/// Requests of a key in any 60 seconds. One more pauses the key.
pub const BURST_LIMIT: usize = 300;
/// Length of the burst window, in seconds.
pub const BURST_WINDOW_S: u64 = 60;
/// Requests of a key that a remote node may have admitted and home has not charged yet.
pub const IN_FLIGHT_MAX: usize = 4;
/// Requests per day that all clients of the demo share.
pub const DEMO_DAILY_LIMIT: u64 = 1_000;
/// Maximum number of keys per account.
pub const KEYS_PER_ACCOUNT_MAX: usize = 10;
/// The default plan, and the only one in the specification.
pub const FREE_PLAN: &str = "free";
/// Requests per key per day on the free plan.
pub const FREE_DAILY_LIMIT: u64 = 10_000;

/// A named daily limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name, such as `free`.
    pub name: String,
    /// Requests per key per day.
    pub daily_limit: u64,
}
