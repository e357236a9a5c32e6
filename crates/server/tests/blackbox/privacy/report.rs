//! Collects the checks of a test, and writes them to its output and to a file if the environment names one.

use std::fs::File;
use std::io::Write;

/// The checks of one test.
pub(crate) struct PrivacyReport {
    lines: Vec<String>,
    failed: Vec<String>,
}

impl PrivacyReport {
    pub(crate) const fn new() -> Self {
        Self { lines: Vec::new(), failed: Vec::new() }
    }

    /// Records a check, with what was seen instead if it failed.
    pub(crate) fn check(&mut self, has_passed: bool, claim: &str, actual: &str) {
        if has_passed {
            self.lines.push(format!("passed  {claim}"));
        } else {
            self.lines.push(format!("FAILED  {claim}: {actual}"));
            self.failed.push(format!("{claim}: {actual}"));
        }
    }

    /// Records a figure.
    pub(crate) fn note(&mut self, text: &str) {
        self.lines.push(format!("        {text}"));
    }

    /// Prints all checks and panics if one failed.
    #[expect(clippy::print_stderr, reason = "the checks are the result of the test")]
    pub(crate) fn finish(self) {
        let text = self.lines.join("\n");
        eprintln!("{text}");
        if let Some(file) = std::env::var_os("IPSEITY_PRIVACY_REPORT") {
            let mut file = File::options().create(true).append(true).open(file).expect("write the report");
            file.write_all(format!("{text}\n").as_bytes()).expect("write the report");
        }
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
    }
}
