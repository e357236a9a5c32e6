//! Arbitrary text as a key.
#![no_main]
#![expect(dead_code, reason = "each target checks one of the properties")]

use libfuzzer_sys::fuzz_target;

#[path = "../properties.rs"]
mod properties;

fuzz_target!(|text: &str| properties::check_key(text));
