//! No text uses a word of `banned_words.txt`.

use super::text_files;
use regex::{Regex, RegexBuilder};

/// Files that are data, generated, or applied to databases already, so that their text must not change.
const NOT_PROSE: [&str; 14] = [
    ".lock",
    "package-lock.json",
    ".csv",
    ".tsv",
    ".svg",
    "bench.json",
    "scale.json",
    "OFL.txt",
    "common_passwords.txt",
    "countries.txt",
    "currencies.txt",
    "regions.txt",
    "subdivisions.txt",
    "zones.txt",
];

struct Rule {
    pattern: Regex,
    instead: String,
}

struct Exception {
    path: String,
    pattern: Regex,
}

#[derive(Default)]
struct BannedWords {
    text: Vec<Rule>,
    user: Vec<Rule>,
    name: Vec<Rule>,
    allow: Vec<Exception>,
}

impl BannedWords {
    fn read(list: &str) -> Self {
        let regex =
            |pattern: &str| RegexBuilder::new(pattern).case_insensitive(true).build().expect("regular expression");
        let mut words = Self::default();
        for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (kind, rule) = line.split_once(' ').expect("kind and rule");
            let (pattern, instead) = rule.rsplit_once(" = ").expect("pattern = reason");
            let pattern = pattern.trim();
            let rule = || Rule { pattern: regex(pattern), instead: instead.to_owned() };
            match kind {
                "text" => words.text.push(rule()),
                "user" => words.user.push(rule()),
                "name" => {
                    words.name.push(Rule { pattern: regex(&format!("^{pattern}$")), instead: instead.to_owned() })
                }
                "allow" => {
                    let (path, pattern) = pattern.split_once(" : ").expect("path : pattern");
                    words.allow.push(Exception { path: path.trim().to_owned(), pattern: regex(pattern.trim()) });
                }
                _ => panic!("unknown kind in {line:?}"),
            }
        }
        words
    }

    /// Lines of a file that break a rule.
    fn hits(&self, path: &str, text: &str) -> Vec<String> {
        let allowed: Vec<_> = self.allow.iter().filter(|exception| path.starts_with(&exception.path)).collect();
        let user_rules = if is_read_by_users(path) { self.user.as_slice() } else { &[] };
        let mut hits = Vec::new();
        for (number, line) in text.lines().enumerate() {
            if allowed.iter().any(|exception| exception.pattern.is_match(line)) {
                continue;
            }
            let mut report = |word: &str, instead: &str| {
                hits.push(format!("{path}:{}: {word:?}, instead: {instead}", number + 1));
            };
            for rule in self.text.iter().chain(user_rules) {
                if let Some(found) = rule.pattern.find(line) {
                    report(found.as_str(), &rule.instead);
                }
            }
            for word in declared_name(path, line).iter().flat_map(|name| words_of(name)) {
                if let Some(rule) = self.name.iter().find(|rule| rule.pattern.is_match(&word)) {
                    report(&word, &rule.instead);
                }
            }
        }
        hits
    }
}

fn is_read_by_users(path: &str) -> bool {
    let is_page = path.ends_with(".md") || path.ends_with(".html");
    (is_page && !path.starts_with("docs/decisions/"))
        || path.starts_with("samples/")
        || path.ends_with("default.toml")
        || path.ends_with("help.txt")
}

/// The name that a line of Rust declares: a module, type, function or constant.
fn declared_name(path: &str, line: &str) -> Option<String> {
    let mut words =
        line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty());
    let declares = |word: &&str| ["mod", "struct", "enum", "trait", "type", "fn", "const", "static"].contains(word);
    (path.ends_with(".rs") && !line.trim_start().starts_with("//")).then(|| words.find(declares))??;
    words.next().map(str::to_owned)
}

/// `SubnetLimit` and `subnet_limit` as `subnet`, `limit`.
fn words_of(name: &str) -> Vec<String> {
    let mut spaced = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && spaced.ends_with(|last: char| last.is_lowercase()) {
            spaced.push('_');
        }
        spaced.push(letter);
    }
    spaced.to_lowercase().split('_').map(str::to_owned).collect()
}

fn banned_words() -> BannedWords {
    BannedWords::read(include_str!("banned_words.txt"))
}

#[test]
fn no_banned_words() {
    let words = banned_words();
    let mut hits = Vec::new();
    for (path, text) in text_files() {
        if path.contains("/migrations/") || NOT_PROSE.iter().any(|ending| path.ends_with(ending)) {
            continue;
        }
        for name in path.split(['/', '.', '-']) {
            hits.extend(words.hits(&path, &format!("mod {name}")).into_iter().filter(|hit| hit.contains(": \"")));
        }
        hits.extend(words.hits(&path, &text));
    }
    assert!(hits.is_empty(), "{} lines use banned words:\n{}", hits.len(), hits.join("\n"));
}

#[test]
fn planted_words_are_found() {
    let words = banned_words();
    for (path, line) in [
        ("docs/operations/planted.md", "The node is told of it."),
        ("docs/site/planted.md", "The request is refused."),
        ("crates/portal/templates/planted.html", "<p>Look into your mail</p>"),
        ("crates/server/src/config/default.toml", "# handshakes at once"),
        ("crates/server/tests/blackbox/help.txt", "Whom mails are from"),
        ("crates/api/src/planted.rs", "/// Nobody reads this."),
        ("crates/api/src/planted.rs", "warn!(\"the counter store does not answer\");"),
        ("crates/api/src/planted.rs", "pub(crate) struct ToldHouse;"),
        ("crates/api/src/planted.rs", "mod wardrobe;"),
        ("crates/api/src/planted.rs", "fn mint_key() {}"),
    ] {
        assert!(!words.hits(path, line).is_empty(), "{path}: {line}");
    }
    assert_eq!(words.hits("crates/api/src/planted.rs", "/// Returns the key's record."), [""; 0]);
}
