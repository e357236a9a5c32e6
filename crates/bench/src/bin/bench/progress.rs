//! Prints progress to standard error.

#[expect(clippy::print_stderr, reason = "progress goes to the terminal")]
pub(crate) fn progress(step: &str) {
    eprintln!("… {step}");
}
