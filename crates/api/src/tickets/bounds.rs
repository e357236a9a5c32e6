//! The bounds and defaults of tickets.

use crate::sealed::TOKEN_LIFETIME_S_MAX;

/// The shortest lifetime of a ticket.
pub(crate) const LIFETIME_S_MIN: u64 = 30;
/// The longest lifetime of a ticket.
pub(crate) const LIFETIME_S_MAX: u64 = TOKEN_LIFETIME_S_MAX;
/// The lifetime of a ticket, unless the request has another.
pub(crate) const LIFETIME_S_DEFAULT: u64 = 300;
/// The largest number of uses of a ticket.
pub(crate) const USES_MAX: u8 = 100;
/// The number of uses of a ticket, unless the request has another.
pub(crate) const USES_DEFAULT: u8 = 5;
