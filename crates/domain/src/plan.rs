//! Plans: how much an account's keys may ask for in a day.

/// The plan of every account that has no other; the only one that the specification describes.
pub const FREE: &str = "free";
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
