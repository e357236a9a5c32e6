//! The version of the workspace, in the changelog, the upgrade notes and the files that show it.

use super::repository_root;
use std::fs;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(path: &str) -> String {
    fs::read_to_string(repository_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn newest_version_of_the_changelog_is_the_workspace_version() {
    let changelog = read("CHANGELOG.md");
    let newest = changelog.lines().filter_map(|line| line.strip_prefix("## ")).find(|title| *title != "Unreleased");
    assert_eq!(newest, Some(VERSION));
}

#[test]
fn upgrade_notes_have_a_section_for_the_workspace_version() {
    let minor = VERSION.rsplit_once('.').expect("three numbers").0;
    let is_section = |line: &str| line.starts_with("## From ") && line.ends_with(&format!(" to {minor}"));
    assert!(read("docs/operations/upgrade.md").lines().any(is_section), "no section for {minor}");
}

#[test]
fn files_show_the_workspace_version() {
    for (path, shown) in [
        ("clients/typescript/package.json", format!("\"version\": \"{VERSION}\"")),
        ("clients/typescript/package-lock.json", format!("\"version\": \"{VERSION}\"")),
        ("deploy/helm/ipseity/Chart.yaml", format!("\nversion: {VERSION}\nappVersion: {VERSION}\n")),
        ("deploy/kubernetes/kustomization.yaml", format!("newTag: {VERSION}")),
        ("docs/operations/install.md", format!("ipseity_{VERSION}-1_amd64.deb")),
        ("docs/operations/upgrade.md", format!("ipseity_{VERSION}-1_amd64.deb")),
    ] {
        assert!(read(path).contains(&shown), "{path} lacks {shown:?}");
    }
}
