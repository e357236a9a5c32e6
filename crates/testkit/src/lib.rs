//! Starts, kills, freezes and removes real PostgreSQL, Redis and Ipseity processes for tests.
//!
//! There are no mocks, and no process outlives the one that started it. Linux only: `PR_SET_PDEATHSIG` ends children
//! with their parent, and `/proc` lists descendants.

mod base64;
pub mod certificate;
pub mod client;
pub mod clock;
pub mod command;
mod console_seed;
pub mod delayed_link;
pub mod deployment;
mod eventually;
pub mod fault_proxy;
pub mod fixtures;
pub mod pebble;
pub mod pgbouncer;
mod ports;
pub mod privacy_search;
pub mod process;
pub mod proxy;
pub mod smtp_sink;
mod test_dir;
pub mod webhook_receiver;

pub use base64::base64;
pub use client::http1::{StreamingResponse, TestClient, TestResponse, curl};
pub use client::quic::Http3TestClient;
pub use client::streams::StreamTestClient;
pub use clock::TestClock;
pub use command::CommandOutput;
pub use console_seed::seed_console;
pub use delayed_link::DelayedLink;
pub use deployment::cluster::RedisCluster;
pub use deployment::node::{Node, NodeFaultProxies};
pub use deployment::postgres::{Postgres, PostgresOptions};
pub use deployment::redis::{Redis, RedisOptions};
pub use deployment::sentinel::RedisSentinels;
pub use deployment::{Deployment, DeploymentOptions, IssuedKey};
pub use eventually::eventually;
pub use fault_proxy::{FaultConfig, FaultProxy};
pub use fixtures::samples::GeoSample;
pub use pebble::Pebble;
pub use pgbouncer::PgBouncer;
pub use ports::ReservedPort;
pub use privacy_search::{Needle, NeedleEncoding, PrivacyFinding, PrivacySearch};
pub use process::ChildProcess;
pub use proxy::{ReverseProxy, ReverseProxyKind};
pub use smtp_sink::{ReceivedEmail, SmtpSink};
pub use test_dir::TestDir;
pub use webhook_receiver::{ReceivedWebhook, ReceiverReply, WebhookReceiver};
