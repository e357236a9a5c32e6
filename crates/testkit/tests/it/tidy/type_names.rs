//! Types that other files can use have one definition each, so that a search for the name finds it.

use super::rust_files;
use std::collections::BTreeMap;
use syn::{Item, Visibility};

/// Names with more than one definition, and why.
const EXPLAINED: [(&str, &str); 1] =
    [("Client", "the caller of the service in ipseity-domain; the HTTP client of the published library")];

#[test]
#[expect(clippy::print_stdout, reason = "`just structure` shows it")]
fn visible_types_are_defined_once() {
    let mut definitions = BTreeMap::<String, Vec<String>>::new();
    for (path, source) in rust_files().into_iter().filter(|(path, _)| path.contains("/src/")) {
        let file = syn::parse_file(&source).unwrap_or_else(|error| panic!("{path}: {error}"));
        for name in visible_types(&file.items) {
            definitions.entry(name).or_default().push(path.clone());
        }
    }
    assert!(definitions.len() > 200, "only {} types found", definitions.len());
    definitions.retain(|_, paths| paths.len() > 1);
    for (name, paths) in &definitions {
        println!("{name}: {}", paths.join(", "));
    }
    let names: Vec<_> = definitions.keys().map(String::as_str).collect();
    assert_eq!(names, EXPLAINED.map(|(name, _)| name), "rename one of each, or explain them: {definitions:#?}");
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum may get more variants")]
fn visible_types(items: &[Item]) -> Vec<String> {
    let mut found = Vec::new();
    for item in items {
        let (visibility, name) = match item {
            Item::Struct(item) => (&item.vis, &item.ident),
            Item::Enum(item) => (&item.vis, &item.ident),
            Item::Trait(item) => (&item.vis, &item.ident),
            Item::Type(item) => (&item.vis, &item.ident),
            Item::Union(item) => (&item.vis, &item.ident),
            Item::Mod(item) => {
                found.extend(item.content.iter().flat_map(|(_, items)| visible_types(items)));
                continue;
            }
            _ => continue,
        };
        if !matches!(visibility, Visibility::Inherited) {
            found.push(name.to_string());
        }
    }
    found
}
