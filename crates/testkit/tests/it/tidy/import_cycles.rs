//! Files of a crate import each other in one direction.
//!
//! An import counts for the file that defines what is imported: `pub use` is followed, and is not an import itself.
//! Code under `#[cfg(test)]` does not count.

use super::repository_root;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

/// A module's path below the crate root.
type ModulePath = Vec<String>;

#[test]
#[expect(clippy::print_stdout, reason = "`just structure` shows it")]
fn imports_have_no_cycles_in_api_and_ledger_and_only_pairs_elsewhere() {
    let mut too_long = Vec::new();
    for root in crate_roots() {
        let cycles = Modules::load(&root).cycles();
        let path = root.strip_prefix(repository_root()).expect("path below the root").display().to_string();
        println!("{path}: {} cycles {:?}", cycles.len(), cycles.iter().map(Vec::len).collect::<Vec<_>>());
        let files_max = if path.starts_with("crates/api") || path.starts_with("crates/ledger") { 1 } else { 2 };
        too_long.extend(cycles.into_iter().filter(|cycle| cycle.len() > files_max).map(|cycle| (path.clone(), cycle)));
    }
    assert!(too_long.is_empty(), "{too_long:#?}");
}

#[test]
fn planted_cycle_is_found() {
    let root = ipseity_testkit::TestDir::create().expect("folder");
    for (name, text) in [
        ("lib.rs", "mod first; mod second; mod third; pub use first::First;"),
        (
            "first.rs",
            "use crate::second::Second; pub struct First; #[cfg(test)] mod tests { use crate::third::Third; }",
        ),
        ("second.rs", "pub struct Second; fn f() { println!(\"{}\", crate::First::NAME) }"),
        ("third.rs", "pub struct Third(super::first::First);"),
    ] {
        fs::write(root.path().join(name), text).expect("file written");
    }
    assert_eq!(Modules::load(&root.path().join("lib.rs")).cycles(), [["first", "second"]]);
}

fn crate_roots() -> Vec<PathBuf> {
    let children = |folder: PathBuf| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("folder entry").path()).collect()
    };
    let mut roots = Vec::new();
    for package in children(repository_root().join("crates")) {
        let programs = children(package.join("src/bin")).into_iter().map(|program| program.join("main.rs"));
        roots.extend([package.join("src/lib.rs"), package.join("src/main.rs")].into_iter().chain(programs));
    }
    roots.retain(|root| root.exists());
    assert!(roots.len() >= 10, "{roots:?}");
    roots.sort();
    roots
}

#[derive(Default)]
struct Module {
    definitions: BTreeSet<String>,
    /// Paths as written, split at `::`.
    imports: Vec<Vec<String>>,
    reexports: Vec<(Vec<String>, String)>,
    children: Vec<String>,
}

struct Modules(BTreeMap<ModulePath, Module>);

impl Modules {
    fn load(root: &Path) -> Self {
        let mut modules = Self(BTreeMap::new());
        modules.load_file(root, Vec::new());
        modules
    }

    fn load_file(&mut self, path: &Path, module_path: ModulePath) {
        let source = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut module = Module::default();
        module.visit_file(&syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        let is_folder_root = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| path.ends_with(name));
        let folder = if is_folder_root { path.parent().expect("folder").to_owned() } else { path.with_extension("") };
        for child in &module.children {
            let candidates = [folder.join(format!("{child}.rs")), folder.join(child).join("mod.rs")];
            let file = candidates.into_iter().find(|file| file.exists()).expect("file of the module");
            self.load_file(&file, [module_path.as_slice(), std::slice::from_ref(child)].concat());
        }
        self.0.insert(module_path, module);
    }

    /// A path as written in a module, from the crate root. `None` for what comes from another crate.
    fn absolute(&self, module: &ModulePath, written: &[String]) -> Option<Vec<String>> {
        let mut base = module.clone();
        let mut rest = written;
        match written.first()?.as_str() {
            "crate" => (base, rest) = (Vec::new(), &written[1..]),
            "self" | "super" => {
                while let Some(first @ ("self" | "super")) = rest.first().map(String::as_str) {
                    if first == "super" {
                        base.pop();
                    }
                    rest = &rest[1..];
                }
            }
            first => {
                // A child module, or a module that an import brought into scope.
                if !self.0[module].children.iter().any(|child| child == first) {
                    let is_of_crate = |import: &[String]| ["crate", "self", "super"].contains(&import[0].as_str());
                    let imported = |import: &&Vec<String>| is_of_crate(import) && import[1..].ends_with(&written[..1]);
                    let import = self.0[module].imports.iter().find(imported)?;
                    base = self.absolute(module, import).filter(|path| self.0.contains_key(path))?;
                    rest = &written[1..];
                }
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The module that defines what an absolute path names.
    fn definer(&self, path: &[String], depth: usize) -> ModulePath {
        let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length])).unwrap_or(0);
        let (module_path, rest) = (path[..length].to_vec(), &path[length..]);
        let module = &self.0[&module_path];
        let Some(name) = rest.first().filter(|name| !module.definitions.contains(*name) && depth < 8) else {
            return module_path;
        };
        for (written, public_name) in &module.reexports {
            let Some(target) = self.absolute(&module_path, written) else { continue };
            if public_name == name {
                return self.definer(&target, depth + 1);
            }
            if public_name == "*" {
                let through = [&target[..target.len() - 1], std::slice::from_ref(name)].concat();
                let definer = self.definer(&through, depth + 1);
                if self.0[&definer].definitions.contains(name) {
                    return definer;
                }
            }
        }
        module_path
    }

    /// Groups of files that import each other, directly or through others, as module paths.
    fn cycles(&self) -> Vec<Vec<String>> {
        let mut reachable = BTreeMap::<&ModulePath, BTreeSet<ModulePath>>::new();
        for (path, module) in &self.0 {
            let is_module = |import: &Vec<String>| self.0.contains_key(import);
            let imports = module.imports.iter().filter_map(|written| self.absolute(path, written));
            let definers = imports.filter(|import| !is_module(import)).map(|import| self.definer(&import, 0));
            reachable.insert(path, definers.filter(|definer| definer != path).collect());
        }
        while {
            let before: usize = reachable.values().map(BTreeSet::len).sum();
            let snapshot = reachable.clone();
            for targets in reachable.values_mut() {
                let further: Vec<_> = targets.iter().flat_map(|target| snapshot[target].clone()).collect();
                targets.extend(further);
            }
            before != reachable.values().map(BTreeSet::len).sum::<usize>()
        } {}
        let mut cycles = BTreeSet::new();
        for (path, targets) in reachable.iter().filter(|(path, targets)| targets.contains(**path)) {
            let members = targets.iter().filter(|target| reachable[target].contains(*path));
            cycles.insert(
                members.map(|member| if member.is_empty() { "root".to_owned() } else { member.join("::") }).collect(),
            );
        }
        cycles.into_iter().collect()
    }
}

fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                let condition = list.tokens.to_string();
                condition.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "test")
            })
    })
}

impl Visit<'_> for Module {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the enum may get more variants")]
    fn visit_item(&mut self, item: &Item) {
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, None),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            _ => return,
        };
        if !is_test_only(attributes) {
            self.definitions.extend(name.map(ToString::to_string));
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &ItemMod) {
        if item.content.is_none() {
            self.children.push(item.ident.to_string());
        } else {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        let mut paths = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut paths);
        if matches!(item.vis, Visibility::Inherited) {
            self.imports.extend(paths.into_iter().map(|(path, _)| path));
        } else {
            self.reexports.extend(paths);
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 && path.leading_colon.is_none() {
            self.imports.push(segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &Macro) {
        self.collect_paths(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

impl Module {
    /// Paths among the tokens of a macro call, which are not parsed.
    fn collect_paths(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut after_colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if after_colons == 2 => path.push(name.to_string()),
                TokenTree::Ident(name) => {
                    self.imports.extend((path.len() > 1).then_some(path));
                    path = vec![name.to_string()];
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    after_colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.collect_paths(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.imports.extend((path.len() > 1).then_some(path));
                    path = Vec::new();
                }
            }
            after_colons = 0;
        }
        self.imports.extend((path.len() > 1).then_some(path));
    }
}

/// The paths of a `use` tree, each with the name that it gets.
fn flatten(tree: &UseTree, prefix: &mut Vec<String>, paths: &mut Vec<(Vec<String>, String)>) {
    let mut add = |prefix: &[String], name: String, public_name: String| {
        let is_self = name == "self" && !prefix.is_empty();
        let path = if is_self { prefix.to_vec() } else { [prefix, &[name]].concat() };
        paths.push((path, public_name));
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, paths);
            prefix.pop();
        }
        UseTree::Name(name) => add(prefix, name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(rename) => add(prefix, rename.ident.to_string(), rename.rename.to_string()),
        UseTree::Glob(_) => add(prefix, "*".to_owned(), "*".to_owned()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, paths)),
    }
}
