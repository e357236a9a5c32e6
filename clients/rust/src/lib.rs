#![doc = include_str!("../README.md")]

mod client;
mod error;
mod facts;
mod limits;
mod retry;

pub use client::{Answer, Client};
pub use error::{Cause, Error, Refusal};
pub use facts::{Demo, Full, Geo, Ip, Keyed, Scope};
pub use limits::Limits;
pub use reqwest;
