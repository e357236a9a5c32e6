//! Plans and limits.

/// Requests of a key in any 60 seconds by the specification. One more pauses the key.
pub const BURST_LIMIT: usize = 300;
/// The largest burst limit. Redis keeps as many times per key, and a message of a remote node holds as many.
pub const BURST_LIMIT_MAX: usize = 6_000;
/// Length of the burst window, in seconds.
pub const BURST_WINDOW_S: u64 = 60;
/// Requests of a key that a remote node may have admitted and home has not charged yet.
pub const IN_FLIGHT_MAX: usize = 4;
/// Requests per day that all clients of the demo share, by the specification.
pub const DEMO_DAILY_LIMIT: u64 = 1_000;
/// Maximum number of keys per account by the specification.
pub const KEYS_PER_ACCOUNT_MAX: usize = 10;
/// The largest maximum number of keys per account.
pub const KEYS_MAX_LIMIT: usize = 1_000;
/// The default plan, and the only one in the specification.
pub const FREE_PLAN: &str = "free";
/// Requests per key per day on the free plan.
pub const FREE_DAILY_LIMIT: u64 = 10_000;

/// The largest daily limit. Redis stores eight digits.
pub const DAILY_LIMIT_MAX: u64 = 99_999_999;

/// The limits of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests per key per day.
    pub daily_limit: u64,
    /// Requests per key in any 60 seconds.
    pub burst_limit: usize,
    /// Maximum number of keys.
    pub keys_max: usize,
}

impl Limits {
    /// The limits of the specification.
    pub const SPECIFIED: Self =
        Self { daily_limit: FREE_DAILY_LIMIT, burst_limit: BURST_LIMIT, keys_max: KEYS_PER_ACCOUNT_MAX };
}

/// Named limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name, such as `free`.
    pub name: String,
    /// Its limits.
    pub limits: Limits,
}

/// Limits that an operator set for one account or key, instead of those of its plan. `None` where the plan applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitOverrides {
    /// Requests per key per day.
    pub daily_limit: Option<u64>,
    /// Requests per key in any 60 seconds.
    pub burst_limit: Option<usize>,
    /// Maximum number of keys. Always `None` for a key.
    pub keys_max: Option<usize>,
}
