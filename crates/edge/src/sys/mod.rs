//! Linux features that the standard library does not offer.

pub(crate) mod rlimit;
pub(crate) mod rtt;
pub(crate) mod socket_activation;
