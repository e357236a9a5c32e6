//! Checks that `docs/conformance.md` is complete: every test it names exists, and it names every test of the contract.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use ipseity_domain::plan::FREE_DAILY_LIMIT;
use ipseity_domain::{BURST_LIMIT, DEMO_DAILY_LIMIT, Field, KEYS_PER_ACCOUNT_MAX};

const CONFORMANCE_LIST: &str = include_str!("../../../../docs/conformance.md");
const PROMISES_PAGE: &str = include_str!("../../../../docs/site/promises.md");
const REFUSAL_SOURCE: &str = include_str!("../../../api/src/error/mod.rs");
const SECTIONS: [&str; 16] =
    ["0", "1", "2.1", "2.2", "2.3", "3", "4.1", "4.2", "4.3", "4.4", "5", "6", "7", "8", "9", "D"];
/// Modules that contain only tests of the contract.
const CONTRACT_MODULES: [&str; 8] =
    ["authentication", "conformance", "cors", "demo", "errors", "limits", "lookup", "plain_http"];

struct ConformanceRow {
    section: &'static str,
    number: usize,
    statement: &'static str,
    tests: Vec<&'static str>,
    decision: Option<&'static str>,
}

/// Rows of all tables. Fails on a table line that is not a row.
fn conformance_rows() -> Vec<ConformanceRow> {
    let lines = CONFORMANCE_LIST.lines().filter(|line| line.starts_with('|'));
    let rows = lines.filter(|line| !line.starts_with("| Id |") && !line.starts_with("|---"));
    rows.map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let ["", id, statement, tests, decision, ""] = cells[..] else { panic!("expected five bars: {line}") };
        let (section, number) = id.split_once('-').expect("ID is section-number");
        let decision = decision.split_once("](decisions/").map(|(_, rest)| rest.trim_end_matches(')'));
        ConformanceRow {
            section,
            number: number.parse().expect("valid number"),
            statement,
            tests: backquoted(tests),
            decision,
        }
    })
    .collect()
}

/// Texts between backticks.
fn backquoted(text: &'static str) -> Vec<&'static str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn crates_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names of the tests in a source file.
fn tests_in(source: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, name)) = line.split_once("fn ")
            && !line.starts_with("//")
            && std::mem::take(&mut is_test)
        {
            tests.insert(name.split('(').next().unwrap_or_default().to_owned());
        }
    }
    tests
}

/// Tests of `module` in this suite, or of `crate::module`, in its sources or its test suite.
fn tests_of(module: &str) -> BTreeSet<String> {
    let mut file = match module.split_once("::") {
        None => crates_dir().join(format!("server/tests/blackbox/{module}.rs")),
        Some((of, module)) => {
            let file = format!("{}.rs", module.replace("::", "/"));
            let suite_file = crates_dir().join(of).join("tests/it").join(&file);
            if suite_file.exists() { suite_file } else { crates_dir().join(of).join("src").join(file) }
        }
    };
    if !file.exists() {
        file = file.with_extension("").join("mod.rs");
    }
    tests_in(&fs::read_to_string(&file).unwrap_or_else(|error| panic!("{module}: {error}")))
}

/// Every test that the document names, in its tables and in its text.
fn named_tests() -> BTreeSet<&'static str> {
    let head = CONFORMANCE_LIST.split("\n## ").next().unwrap_or_default();
    let is_contract_test = |name: &&str| CONTRACT_MODULES.iter().any(|module| name.starts_with(&format!("{module}::")));
    conformance_rows()
        .into_iter()
        .flat_map(|row| row.tests)
        .chain(backquoted(head).into_iter().filter(is_contract_test))
        .collect()
}

#[test]
fn conformance_list_names_existing_tests() {
    let mut modules: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for name in named_tests() {
        let (module, test) = name.rsplit_once("::").unwrap_or_else(|| panic!("{name} is not the name of a test"));
        assert!(modules.entry(module).or_insert_with(|| tests_of(module)).contains(test), "no test named {name}");
    }
}

#[test]
fn promises_page_names_existing_tests() {
    let names: Vec<_> = backquoted(PROMISES_PAGE).into_iter().filter(|name| name.contains("::")).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in names {
        let (module, test) = name.rsplit_once("::").expect("name is module::test");
        assert!(tests_of(module).contains(test), "no test named {name}");
    }
}

#[test]
fn every_contract_test_is_listed() {
    let listed = named_tests();
    for module in CONTRACT_MODULES {
        let tests = tests_of(module);
        assert!(!tests.is_empty(), "{module} has no tests");
        for test in tests {
            assert!(listed.contains(format!("{module}::{test}").as_str()), "{module}::{test} is not listed");
        }
    }
}

#[test]
fn conformance_ids_have_no_gaps() {
    let rows = conformance_rows();
    for section in SECTIONS {
        let numbers: Vec<_> = rows.iter().filter(|row| row.section == section).map(|row| row.number).collect();
        assert!(!numbers.is_empty() && numbers.iter().copied().eq(1..=numbers.len()), "section {section}: {numbers:?}");
    }
    for row in &rows {
        assert!(SECTIONS.contains(&row.section), "no section {}", row.section);
        assert!(!row.tests.is_empty(), "no test for {}-{:02}", row.section, row.number);
        let is_open =
            row.statement.contains("eft open:") || row.statement.starts_with("Beyond the list:") || row.section == "D";
        assert!(!is_open || row.decision.is_some(), "{}-{:02} is open and undecided", row.section, row.number);
    }
}

#[test]
fn every_listed_decision_exists() {
    for row in conformance_rows() {
        if let Some(decision) = row.decision {
            let page = crates_dir().join("../docs/decisions").join(decision);
            assert!(page.is_file(), "{}-{:02} names {decision}", row.section, row.number);
        }
    }
}

#[test]
fn every_contract_decision_is_listed() {
    let listed: BTreeSet<_> = conformance_rows().iter().filter_map(|row| row.decision).collect();
    for page in fs::read_dir(crates_dir().join("../docs/decisions")).expect("list the decisions") {
        let page = page.expect("read the directory");
        let name = page.file_name().into_string().expect("file name is UTF-8");
        // The other decisions are not about the contract.
        let is_about_contract = fs::read_to_string(page.path()).expect("read the decision").contains("The contract");
        assert!(!is_about_contract || listed.contains(name.as_str()), "{name} is not listed");
    }
}

#[test]
fn every_field_error_code_and_limit_is_listed() {
    let rows = conformance_rows();
    let count_rows = |section: &str, text: &str| {
        rows.iter().filter(|row| row.section == section && row.statement.contains(text)).count()
    };
    for field in Field::ALL {
        let name = format!("`{}`: ", field.name());
        let field_rows: Vec<_> =
            rows.iter().filter(|row| row.section == "2.1" && row.statement.starts_with(&name)).collect();
        assert!(field_rows.len() == 1, "{} rows for {name}", field_rows.len());
        assert!(field_rows[0].statement.contains(&format!("from scope {}", field.scope())), "{name}");
    }
    for field in ["error", "message", "docs", "enterprise", "signup"] {
        assert_eq!(count_rows("2.2", &format!("`{field}`: ")), 1, "{field}");
    }
    let codes = REFUSAL_SOURCE.split("const fn code").nth(1).and_then(|rest| rest.split("const fn").next());
    let codes: BTreeSet<_> = codes.expect("codes exist").split('"').skip(1).step_by(2).collect();
    assert!(codes.len() >= 8, "{codes:?}");
    for code in codes {
        assert!(count_rows("7", &format!("`{code}`")) > 0, "no row for {code}");
    }
    assert_eq!((FREE_DAILY_LIMIT, DEMO_DAILY_LIMIT), (10_000, 1_000));
    for limit in [
        "Daily quota: 10,000 ".to_owned(),
        format!("Burst limit: {BURST_LIMIT} "),
        "Demo quota: 1,000 ".to_owned(),
        format!("Keys per account: {KEYS_PER_ACCOUNT_MAX}."),
    ] {
        assert_eq!(count_rows("8", &limit), 1, "{limit}");
    }
}
