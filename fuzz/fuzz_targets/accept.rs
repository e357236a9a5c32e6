//! Arbitrary bytes sent to real listeners.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "../doors.rs"]
mod doors;

static DOORS: LazyLock<doors::Doors> = LazyLock::new(doors::Doors::open);

fuzz_target!(|bytes: &[u8]| DOORS.knock(bytes));
