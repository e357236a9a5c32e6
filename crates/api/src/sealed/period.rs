//! The periods of subkeys.

/// The longest lifetime of a token, in seconds.
pub const TOKEN_LIFETIME_S_MAX: u64 = 900;

/// How far the clocks of two nodes may differ, in seconds.
pub(crate) const CLOCK_TOLERANCE_S: u64 = 2;

/// The age of a token after which no node needs its key.
pub(super) const TOKEN_AGE_S_MAX: u64 = TOKEN_LIFETIME_S_MAX + CLOCK_TOLERANCE_S;

/// How long a subkey seals. It then opens tokens for [`TOKEN_AGE_S_MAX`], so none is of use for a whole hour.
pub(super) const PERIOD_S: u64 = 2_400;

/// The number of the period at a time.
pub(super) const fn period_of(now_s: u64) -> u64 {
    now_s / PERIOD_S
}

/// The periods whose tokens may still be valid: the current one, the previous one at its start, and the next one for a node
/// whose clock is ahead.
pub(super) fn accepted_periods(now_s: u64) -> impl Iterator<Item = u64> {
    period_of(now_s.saturating_sub(TOKEN_AGE_S_MAX))..=period_of(now_s + CLOCK_TOLERANCE_S)
}

/// The last byte of the period's number. Accepted periods differ in it.
pub(super) const fn period_byte(period: u64) -> u8 {
    period.to_be_bytes()[7]
}
