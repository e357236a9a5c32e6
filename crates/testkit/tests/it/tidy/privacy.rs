//! A client's address can be read only where it is needed.

use super::{occurrences, repository_root};
use std::fs;

#[test]
fn address_is_exposed_only_in_allowed_files() {
    let allowed = [
        "crates/api/src/lookup/renderer/body.rs",
        "crates/api/src/pairing/token.rs",
        "crates/domain/src/network_set.rs",
        "crates/domain/src/restrictions/mod.rs",
        "crates/edge/src/proxy/trust.rs",
        "crates/geo/src/atlas.rs",
        "crates/server/src/cli/explain_client.rs",
    ];
    for occurrence in occurrences("address.expose()") {
        let (path, _) = occurrence.split_once(':').expect("path:line");
        let in_test = path.contains("/tests/");
        assert!(in_test || allowed.contains(&path), "{occurrence}");
    }
    let client = fs::read_to_string(repository_root().join("crates/domain/src/client.rs")).expect("client.rs");
    let derived = client.lines().take_while(|line| !line.contains("pub struct Address")).last().expect("derive");
    assert_eq!(derived, "#[derive(Clone, Copy, PartialEq, Eq)]");
}
