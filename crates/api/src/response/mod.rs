//! Building blocks of responses: headers that every response carries, and rate limit headers.

pub(crate) mod header_value;
pub(crate) mod rate_limit_headers;
