//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to the hard limit and returns the limit in effect.
///
/// Returns `usize::MAX` if there is no limit.
#[must_use]
pub fn raise_file_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let files = if is_raised { maximum } else { current };
    files.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_the_file_limit_is_idempotent() {
        let limit = raise_file_limit();
        assert!(limit > 2);
        assert_eq!(raise_file_limit(), limit);
    }
}
