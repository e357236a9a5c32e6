#![doc = include_str!("../README.md")]

mod client;
mod error;
mod facts;
mod key_status;
mod pair;
mod rate_limit;
mod retry;
mod ticket;

pub use client::{Client, LookupResponse};
pub use error::{ApiError, ApiErrorKind, Error};
pub use facts::{Demo, Full, Geo, Ip, KeyScope, LookupScope};
pub use key_status::{KeyLimits, KeyRestrictions, KeyStatusResponse, KeyUsage};
pub use rate_limit::RateLimit;
pub use reqwest;
pub use ticket::{TicketRequest, TicketResponse};
