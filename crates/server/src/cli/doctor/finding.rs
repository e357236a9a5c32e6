//! What the doctor found: one sentence that says what is wrong and, after a colon, what to do.

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing fails by it.
    Warning,
    /// Fails somebody, now or one day.
    Error,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "note",
            Self::Error => "wrong",
        }
    }
}

#[derive(Debug)]
pub(super) struct DoctorFinding {
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    pub(super) message: String,
}

/// The findings about one thing.
#[derive(Debug)]
pub(super) struct DoctorFindings {
    check: &'static str,
    findings: Vec<DoctorFinding>,
}

impl DoctorFindings {
    pub(super) const fn new(check: &'static str) -> Self {
        Self { check, findings: Vec::new() }
    }

    pub(super) fn error(&mut self, message: impl Into<String>) {
        self.add(Severity::Error, message);
    }

    pub(super) fn warning(&mut self, message: impl Into<String>) {
        self.add(Severity::Warning, message);
    }

    /// What is to be said if nothing is wrong.
    pub(super) fn ok_unless_error(mut self, message: impl Into<String>) -> Vec<DoctorFinding> {
        if self.findings.iter().all(|finding| finding.severity != Severity::Error) {
            self.add(Severity::Ok, message);
        }
        self.findings
    }

    fn add(&mut self, severity: Severity, message: impl Into<String>) {
        self.findings.push(DoctorFinding { check: self.check, severity, message: message.into() });
    }
}

/// One thing that is wrong, and all that can be said of it.
pub(super) fn single_error(check: &'static str, message: impl Into<String>) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new(check);
    findings.error(message);
    findings.findings
}
