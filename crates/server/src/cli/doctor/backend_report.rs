//! The result of checking PostgreSQL or Redis.

use crate::cli::doctor::finding::DoctorFinding;

pub(super) struct BackendReport {
    pub(super) findings: Vec<DoctorFinding>,
    pub(super) clocks: Vec<ClockOffset>,
}

impl BackendReport {
    /// A report of a server that could not be checked.
    pub(super) fn failed(findings: Vec<DoctorFinding>) -> Self {
        Self { findings, clocks: Vec::new() }
    }
}

/// The clock of a server.
#[derive(Clone, Debug)]
pub(super) struct ClockOffset {
    pub(super) source: String,
    /// Milliseconds ahead of this machine's clock.
    pub(super) offset_ms: i64,
}
