//! The tracing target of spans.

/// Target of spans that only a trace collector reads. Without a collector no subscriber enables them, so they
/// cost nothing.
pub const TRACE_TARGET: &str = "trace";
