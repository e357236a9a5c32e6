//! Size, file names and lint attributes.

use super::{occurrences, rust_files, text_files};
use std::path::Path;

const LINES_MAX: usize = 500;
/// The one file in which operators find every setting.
const SETTINGS: &str = "crates/server/src/config/default.toml";
const SETTINGS_LINES_MAX: usize = 600;
const SOURCE_EXTENSIONS: [&str; 11] = ["rs", "lua", "sql", "py", "sh", "toml", "html", "css", "ts", "js", "mjs"];

#[test]
fn source_files_have_at_most_500_lines() {
    let long: Vec<_> = text_files()
        .into_iter()
        .filter(|(path, text)| {
            let lines_max = if path == SETTINGS { SETTINGS_LINES_MAX } else { LINES_MAX };
            SOURCE_EXTENSIONS.iter().any(|ending| path.ends_with(&format!(".{ending}")))
                && text.lines().count() > lines_max
        })
        .map(|(path, _)| path)
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn no_rust_file_has_a_catch_all_name() {
    for (path, _) in rust_files() {
        let name = Path::new(&path).file_stem().expect("file name").to_string_lossy().into_owned();
        assert!(
            !["util", "utils", "common", "helpers", "misc", "types", "core", "manager"].contains(&name.as_str()),
            "{path}"
        );
    }
}

#[test]
fn lints_use_expect_not_allow_and_no_test_is_ignored() {
    for text in ["#[allow(", "#![allow(", "#[ignore"] {
        assert!(occurrences(text).is_empty(), "{text} at {:?}", occurrences(text));
    }
}

#[test]
fn environment_is_read_only_in_allowed_crates() {
    for occurrence in occurrences("env::var") {
        // Samples are complete programs.
        let is_allowed = ["crates/server/", "crates/testkit/", "fuzz/", "samples/"]
            .iter()
            .any(|prefix| occurrence.starts_with(prefix));
        // Test programs of every crate select a mutant. A release has no mutants.
        let is_allowed = is_allowed || occurrence.starts_with("crates/domain/src/mutant.rs:");
        // Cargo passes the output folder to a build script.
        assert!(is_allowed || occurrence.contains("/tests/") || occurrence.contains("/build.rs:"), "{occurrence}");
    }
}
