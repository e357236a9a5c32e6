//! The admin console: who may do what, sessions, the first operator, actions and privacy.

mod actions;
mod audit;
mod authorization;
mod csrf;
mod first_operator;
pub(crate) mod fixture;
mod hosts;
mod invalid_input;
mod operator_commands;
mod passkeys;
mod performance;
mod privacy;
mod routes;
mod search;
mod sessions;
mod throttle;
