//! No client address, plaintext key or other secret is stored anywhere. Thousands of them are sent through every route,
//! protocol, error, panic, timeout and outage, with all logs at their most verbose level. Then every written byte is
//! searched. docs/privacy.md documents this.

pub(crate) mod canaries;
mod core_dumps;
mod faults;
mod fixture;
mod malformed_input;
mod members;
mod planted_leaks;
pub(crate) mod process_memory;
mod report;
mod routes;
mod sinks;

use std::collections::BTreeSet;
use std::path::Path;

use ipseity_testkit::PrivacySearch;
use ipseity_testkit::deployment::sandbox;
use tokio::process::Command;

use self::fixture::shared_fixture;
use self::planted_leaks::PlantedLeak;
use self::report::PrivacyReport;
use self::sinks::{DataSink, SINKS};

/// Every status that must have been observed.
const STATUSES: [u16; 14] = [200, 204, 303, 400, 401, 403, 404, 405, 410, 414, 429, 431, 500, 503];

#[tokio::test(flavor = "multi_thread")]
async fn no_client_data_is_found_in_any_sink() {
    let (fixture, mut report) = (shared_fixture().await, PrivacyReport::new());
    let (count, search) = (fixture.canaries.needles().len(), fixture.canaries.build_search());
    let mut findings = sinks::search_sinks(fixture, &search).await;
    findings.retain(|finding| !fixture.canaries.is_coincidence(finding));
    for sink in &SINKS {
        let in_sink: Vec<_> =
            findings.iter().filter(|finding| DataSink::containing(finding).name == sink.name).collect();
        report.check(in_sink.is_empty(), &format!("{}: nothing found", sink.name), &format!("{:#?}", in_sink.first()));
    }
    let statuses = fixture.statuses.lock().expect("lock is not poisoned").clone();
    let missing: Vec<_> = STATUSES.into_iter().filter(|status| !statuses.contains(status)).collect();
    report.check(
        missing.is_empty(),
        &format!("all statuses were observed: {statuses:?}"),
        &format!("missing {missing:?}"),
    );
    report.note(&format!("{count} addresses and secrets searched for in {} MB", search.searched_bytes() / 1_000_000));
    report.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_leak_is_found_in_every_sink_and_encoding() {
    let (fixture, leak, mut report) = (shared_fixture().await, PlantedLeak::new(), PrivacyReport::new());
    leak.plant_everywhere(fixture).await;
    let findings = sinks::search_sinks(fixture, &PrivacySearch::new(leak.needles()).expect("create a search")).await;
    for sink in &SINKS {
        let in_sink: Vec<_> =
            findings.iter().filter(|finding| DataSink::containing(finding).name == sink.name).collect();
        let missing_encodings =
            sink.expected_encodings().into_iter().filter(|form| in_sink.iter().all(|found| found.encoding != *form));
        let needles = leak.needles().into_iter().filter(|needle| in_sink.iter().all(|found| found.needle != *needle));
        let missed: Vec<_> = missing_encodings
            .map(|form| format!("{form:?}"))
            .chain(needles.map(|needle| format!("{needle:?}")))
            .collect();
        report.check(
            missed.is_empty(),
            &format!("{}: a planted leak is found", sink.name),
            &format!("missed {missed:?}"),
        );
    }
    report.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxed_node_writes_only_in_its_directory() {
    let dir = ipseity_testkit::TestDir::create().expect("create a directory");
    let touch = sandbox::write_sandboxed_wrapper(Path::new("/usr/bin/touch"), dir.path()).expect("write the wrapper");
    let mut written = BTreeSet::new();
    for target in [".", "/tmp", "/var/tmp", "/dev/shm", "/root", "/var/log"] {
        let file = Path::new(target).join("ipseity-touched");
        let output = Command::new(&touch).arg(&file).current_dir(dir.path()).output().await.expect("command runs");
        if output.status.success() {
            written.insert(target);
        }
    }
    let mut report = PrivacyReport::new();
    report.check(
        written == BTreeSet::from(["."]),
        "nodes can write only to their directories",
        &format!("{written:?}"),
    );
    report.finish();
}
