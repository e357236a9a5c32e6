//! Findings of the doctor. A message states the problem, then the fix.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Ok,
    /// Does not affect the exit code.
    Warning,
    /// Breaks the service, now or later.
    Error,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

#[derive(Debug)]
pub(super) struct DoctorFinding {
    pub(super) check: &'static str,
    pub(super) severity: Severity,
    pub(super) message: String,
}

/// Collects the findings of a check.
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

    /// Adds an ok finding if there is no error.
    pub(super) fn ok_unless_error(mut self, message: impl Into<String>) -> Vec<DoctorFinding> {
        if self.findings.iter().all(|finding| finding.severity != Severity::Error) {
            self.add(Severity::Ok, message);
        }
        self.findings
    }

    pub(super) fn into_findings(self) -> Vec<DoctorFinding> {
        self.findings
    }

    fn add(&mut self, severity: Severity, message: impl Into<String>) {
        self.findings.push(DoctorFinding { check: self.check, severity, message: message.into() });
    }
}

pub(super) fn single_error(check: &'static str, message: impl Into<String>) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new(check);
    findings.error(message);
    findings.findings
}

/// Capitalizes the first letter and ends the text with a period.
pub(super) fn to_sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

/// An error and its causes as a sentence. Causes that the text already contains are left out.
pub(super) fn error_sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{separator}{cause}");
        }
    }
    to_sentence(&text)
}
