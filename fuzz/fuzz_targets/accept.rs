//! Arbitrary bytes sent to real listeners.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[path = "../listeners.rs"]
mod listeners;

static LISTENERS: LazyLock<listeners::FuzzListeners> = LazyLock::new(listeners::FuzzListeners::start);

fuzz_target!(|bytes: &[u8]| LISTENERS.send_input(bytes));
