//! Fuzzes the target that `FUZZ_TARGET` names. The arguments are libFuzzer's.
#![no_main]

use std::sync::LazyLock;

use ipseity_fuzz::{FuzzTarget, TARGETS};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET is set");
    TARGETS.iter().find(|target| target.name == name).expect("FUZZ_TARGET names a target")
});

fuzz_target!(|bytes: &[u8]| (TARGET.check)(bytes));
