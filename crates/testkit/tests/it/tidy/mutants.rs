//! Every mutant that the code has is run by `just mutants`, and the other way round.

use super::rust_files;
use regex::Regex;
use std::collections::BTreeSet;

const MUTANTS_MIN: usize = 30;
const LUA_TABLE: &str = "crates/ledger/src/scripts/mutants.rs";
const REGISTER: &str = "crates/testkit/src/bin/mutants/register.rs";

/// The first groups of all matches in the files that `is_wanted` selects.
fn names(pattern: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let pattern = Regex::new(pattern).expect("regular expression");
    let files = rust_files().into_iter().filter(|(path, _)| is_wanted(path));
    files
        .flat_map(|(_, text)| pattern.captures_iter(&text).map(|found| found[1].to_owned()).collect::<Vec<_>>())
        .collect()
}

#[test]
fn every_mutant_is_registered_once() {
    let in_rust = names(r#"is_mutant\("([^"]+)"\)"#, |_| true);
    let in_lua = names(r#"\bname: "([^"]+)""#, |path| path == LUA_TABLE);
    let registered = names(r#"\bname: "([^"]+)""#, |path| path == REGISTER);
    let in_code: Vec<_> = in_rust.into_iter().chain(in_lua).collect();
    let unique = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(unique(&in_code), unique(&registered), "left: in the code; right: in {REGISTER}");
    assert_eq!(unique(&in_code).len(), in_code.len(), "a name selects one mutant: {in_code:?}");
    assert_eq!(unique(&registered).len(), registered.len(), "a mutant is run once: {registered:?}");
    assert!(registered.len() >= MUTANTS_MIN, "only {} mutants", registered.len());
}
