//! The kit itself, against real PostgreSQL and Redis processes.

mod atlas;
mod client;
mod clock;
mod delay;
mod postgres;
mod processes;
mod redis;
mod relay;
mod tidy;
