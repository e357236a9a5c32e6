//! Plans and the limits of the contract.

/// Requests that a key may make in any 60 seconds; one more pauses it.
pub const BURST_LIMIT: usize = 300;
/// Length of the burst limit's window, in seconds.
pub const BURST_WINDOW_S: u64 = 60;
/// Requests a day that all anonymous callers of the demo share.
pub const DEMO_DAILY_LIMIT: u64 = 1_000;
/// Keys that an account may hold.
pub const KEYS_PER_ACCOUNT_MAX: usize = 10;
/// The plan of every account that has no other; the only one that the specification describes.
pub const FREE_PLAN: &str = "free";
/// Requests a day and key on the free plan.
pub const FREE_DAILY_LIMIT: u64 = 10_000;

/// A named daily limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name, such as `free`.
    pub name: String,
    /// Requests a day and key.
    pub daily_limit: u64,
}
