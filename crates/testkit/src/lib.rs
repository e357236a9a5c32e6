//! Real PostgreSQL, Redis and Ipseity processes for tests: started, killed, frozen and removed.
//!
//! Nothing here stands in for our own code, and nothing outlives the process that started it. Linux only: children die with
//! their parent by `PR_SET_PDEATHSIG`, families are found in `/proc`.

pub mod atlas;
mod base64;
pub mod certificate;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod confine;
pub mod delay;
mod eventually;
mod folder;
mod handover;
pub mod house;
pub mod mailbox;
pub mod node;
pub mod pebble;
mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod quic;
pub mod redis;
pub mod relay;
pub mod samples;
pub mod search;
pub mod stream;

pub use base64::base64;
pub use client::{Caller, Reply, Stream, curl};
pub use clock::Clock;
pub use cluster::Cluster;
pub use command::CliOutput;
pub use delay::Line;
pub use eventually::eventually;
pub use folder::Folder;
pub use house::{House, HouseOptions, Issued};
pub use mailbox::{Mail, Mailbox};
pub use node::{Node, Relays};
pub use pebble::Pebble;
pub use ports::Port;
pub use postgres::{Postgres, PostgresOptions};
pub use process::Process;
pub use proxy::{Proxy, ProxyKind};
pub use quic::QuicCaller;
pub use redis::{Redis, RedisOptions};
pub use relay::{Faults, Relay};
pub use samples::Sample;
pub use search::{Finding, Form, Needle, Search};
pub use stream::StreamCaller;
