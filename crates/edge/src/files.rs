//! How many files, and so connections, the system lets this process hold.

/// Raises the limit as far as the system allows, and gives it.
#[expect(unsafe_code, reason = "std knows nothing of resource limits")]
#[must_use]
pub fn raise_file_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel reads or writes one struct, which outlives the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    if !known {
        return usize::MAX;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
    // SAFETY: as above.
    let is_raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0;
    let now = if is_raised { raised.rlim_cur } else { limit.rlim_cur };
    usize::try_from(now).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once_and_for_all() {
        let limit = raise_file_limit();
        assert!(limit > 2);
        assert_eq!(raise_file_limit(), limit);
    }
}
