//! Operating system calls that the standard library lacks.

pub(crate) mod rlimit;
pub(crate) mod rtt;
pub(crate) mod socket_activation;
