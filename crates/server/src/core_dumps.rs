//! Disables core dumps: while a request is processed, memory contains client addresses and keys in plain text.

use anyhow::{Context, Result};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Disables core dumps for the rest of the process. The limit alone is not enough: it does not apply when the kernel pipes dumps to a handler.
pub(crate) fn disable_core_dumps() -> Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .context("failed to disable core dumps, which would contain addresses and keys. Check whether a sandbox blocks prctl.")
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn core_dumps_stay_disabled() {
        for _ in 0..2 {
            disable_core_dumps().expect("core dumps can be disabled");
            assert_eq!(dumpable_behavior().expect("prctl works"), DumpableBehavior::NotDumpable);
            let Rlimit { current, maximum } = getrlimit(Resource::Core);
            assert_eq!((current, maximum), (Some(0), Some(0)));
        }
    }
}
