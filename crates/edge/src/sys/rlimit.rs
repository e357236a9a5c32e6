//! How many files, and so connections, the system lets this process hold.

/// Raises the limit as far as the system allows, and gives it.
#[expect(unsafe_code, reason = "std knows nothing of resource limits")]
#[must_use]
pub fn raise_file_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads or writes one struct, which outlives the call.
    let is_read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    if !is_read {
        return usize::MAX;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // SAFETY: as above.
    let is_raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0;
    let current = if is_raised { raised.rlim_cur } else { limit.rlim_cur };
    usize::try_from(current).unwrap_or(usize::MAX)
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
