//! Arbitrary lines of Forwarded.
#![no_main]
#![expect(dead_code, reason = "each target checks one of the properties")]

use libfuzzer_sys::fuzz_target;

#[path = "../properties.rs"]
mod properties;

fuzz_target!(|bytes: &[u8]| properties::check_forwarding(ipseity_edge::ForwardingHeader::Forwarded, bytes));
