//! Says on standard error what is being done.

#[expect(clippy::print_stderr, reason = "whoever waits wants to know for what")]
pub(crate) fn progress(step: &str) {
    eprintln!("… {step}");
}
