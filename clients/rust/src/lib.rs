#![doc = include_str!("../README.md")]

mod client;
mod error;
mod facts;
mod key_status;
mod manage;
mod pair;
mod rate_limit;
mod retry;
mod ticket;

pub use client::{Client, LookupResponse};
pub use error::{ApiError, ApiErrorKind, Error};
pub use facts::{Demo, Full, Geo, Ip, KeyScope, LookupScope};
pub use key_status::{KeyLimits, KeyRestrictions, KeyStatusResponse, KeyUsage};
pub use manage::{
    ChangedKey, ChannelUpdate, CreatedChannel, CreatedKey, KeyUpdate, ManagedChannel, ManagedKey, ManagedPauseEvidence,
    ManagedRestrictions, ManagementClient, NewChannel, NewKey, Pause, UsageDay,
};
pub use rate_limit::RateLimit;
pub use reqwest;
pub use ticket::{TicketRequest, TicketResponse};
