//! Properties that hold for arbitrary bytes from an untrusted client or server.
//!
//! The program `fuzz` checks them with libFuzzer (`just fuzz`), and a test with mutated seeds. Modules of other crates are
//! included by path, so that a fuzz target does not need the whole crate.

mod accounts;
mod edge;
mod geo;
mod ledger;
mod listeners;
#[path = "../../crates/api/src/sealed/mod.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "keys are neither replaced nor forgotten here"))]
#[expect(unused_imports, reason = "tokens have no lifetime here")]
mod sealed;
mod tokens;

use std::sync::LazyLock;

use ipseity_edge::ForwardingHeader;

use crate::listeners::FuzzListeners;

/// A fuzz target. Its seeds are in `seeds/<name>`.
pub struct FuzzTarget {
    /// The name, also of the directory with its seeds.
    pub name: &'static str,
    /// Panics if the property does not hold for these bytes.
    pub check: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "accept", check: |bytes| LISTENERS.send_input(bytes) },
    FuzzTarget { name: "archive", check: geo::check_archive },
    FuzzTarget { name: "authorization", check: edge::check_authorization },
    FuzzTarget { name: "cookie", check: accounts::check_cookie },
    FuzzTarget { name: "database", check: geo::check_database },
    FuzzTarget { name: "email_address", check: accounts::check_email_address },
    FuzzTarget { name: "form", check: accounts::check_form },
    FuzzTarget { name: "forwarded", check: |bytes| edge::check_forwarding(ForwardingHeader::Forwarded, bytes) },
    FuzzTarget { name: "key", check: edge::check_key },
    FuzzTarget { name: "proxy_header", check: edge::check_proxy_header },
    FuzzTarget { name: "redis_reply", check: ledger::check_redis_reply },
    FuzzTarget { name: "sealed_token", check: tokens::check_sealed_token },
    FuzzTarget { name: "ticket", check: tokens::check_ticket },
    FuzzTarget { name: "webauthn", check: accounts::check_webauthn },
    FuzzTarget {
        name: "x_forwarded_for",
        check: |bytes| edge::check_forwarding(ForwardingHeader::XForwardedFor, bytes),
    },
];

static LISTENERS: LazyLock<FuzzListeners> = LazyLock::new(FuzzListeners::start);
