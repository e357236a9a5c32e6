//! The runbook names no command, option, setting or recipe that does not exist.

use std::fs;
use std::path::Path;

use crate::command_line::alone;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.as_ref().display()))
}

/// Name and text of every page that tells operators what to type.
fn pages() -> Vec<(String, String)> {
    let folders =
        ["docs/operations", "deploy/container", "deploy/kubernetes"].map(|folder| Path::new(ROOT).join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder").flatten());
    let pages =
        files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| (path.display().to_string(), read(&path))).collect()
}

/// What follows each mention of a word, to the end of its line or of its code.
fn after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(word).map(move |(at, _)| {
        let rest = &text[at + word.len()..];
        &rest[..rest.find(['`', '\n', '#', '&']).unwrap_or(rest.len())]
    })
}

#[test]
fn every_command_and_option_of_the_runbook_exists() {
    let mut commands = 0;
    for (page, text) in pages() {
        for line in after(&text, "ipseityctl ").chain(after(&text, "/usr/bin/ipseity ")) {
            let line = line.strip_prefix("--config /etc/ipseity/settings/ipseity.toml ").unwrap_or(line);
            let named: Vec<_> =
                line.split_whitespace().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())).collect();
            // A plan's name looks like a command; what is no command is an argument of the one before.
            let help = |count: usize| alone(&[], &[&named[..count], &["--help"]].concat());
            let known = (1..=named.len()).rev().map(help).find(|output| output.is_success());
            let help = known.unwrap_or_else(|| panic!("{page}: ipseity {line}")).text();
            assert!(!help.contains("\nCommands:"), "{page}: ipseity {line}: no command, but a group of them");
            for option in line.split_whitespace().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{page}: ipseity {line}: there is no {option}");
            }
            commands += 1;
        }
    }
    assert!(commands > 20, "only {commands} commands were found");
}

#[test]
fn every_setting_of_the_runbook_exists() {
    let default = read(Path::new(ROOT).join("crates/server/src/default.toml"));
    let mut settings = 0;
    for (page, text) in pages() {
        for mention in after(&text, "`[") {
            let Some((section, setting)) = mention.split_once("] ") else { continue };
            let names = setting.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
            let setting = names.into_iter().next().unwrap_or_default();
            let own =
                default.split(&format!("\n[{section}]\n")).nth(1).unwrap_or_else(|| panic!("{page}: [{section}]"));
            let own = own.split("\n[").next().unwrap_or_default();
            assert!(
                own.contains(&format!("\n{setting} = ")) || own.starts_with(&format!("{setting} = ")),
                "{page}: [{section}] {setting}"
            );
            settings += 1;
        }
    }
    assert!(settings > 20, "only {settings} settings were found");
}

#[test]
fn every_recipe_of_the_runbook_exists() {
    let recipes = read(Path::new(ROOT).join("justfile"));
    for (page, text) in pages() {
        for mention in after(&text, "`just ") {
            let name = mention.split_whitespace().next().unwrap_or_default();
            let known = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', ':']));
            assert!(recipes.lines().any(known), "{page}: there is no recipe {name:?}");
        }
    }
}
