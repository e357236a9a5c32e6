//! No image of this process's memory is ever written: there addresses and keys are in clear, for as long as a request takes.

use anyhow::{Context, Result};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Forbids core dumps, for good. The limit alone would not do: a handler that the kernel pipes dumps to is not held to it.
pub(crate) fn disable_core_dumps() -> Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .context("core dumps cannot be switched off, and would hold addresses and keys; does a sandbox refuse prctl?")
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn core_dumps_stay_disabled() {
        for _ in 0..2 {
            disable_core_dumps().expect("a system that obeys");
            assert_eq!(dumpable_behavior().expect("an answer"), DumpableBehavior::NotDumpable);
            let Rlimit { current, maximum } = getrlimit(Resource::Core);
            assert_eq!((current, maximum), (Some(0), Some(0)));
        }
    }
}
