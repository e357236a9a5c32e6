//! Logs and traces.

pub(crate) mod log;
pub(crate) mod otlp;
