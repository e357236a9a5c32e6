//! No client address, no clear key and no other secret is stored anywhere: thousands of them go through every route, protocol, error, panic, timeout
//! and outage, with all logs at their most talkative; then every byte that was written is searched. docs/privacy.md tells the reader.

mod canaries;
mod doors;
mod dumps;
mod faults;
mod members;
mod plants;
mod report;
mod routes;
mod sinks;
mod stage;

use std::collections::BTreeSet;
use std::path::Path;

use testkit::{Search, confine};
use tokio::process::Command;

use self::plants::Leak;
use self::report::Report;
use self::sinks::{SINKS, Sink};
use self::stage::stage;

/// Every way in which a request can end must have been gone.
const STATUSES: [u16; 14] = [200, 204, 303, 400, 401, 403, 404, 405, 410, 414, 429, 431, 500, 503];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_client_is_found_in_any_sink() {
    let (stage, mut report) = (stage().await, Report::new());
    let (count, search) = (stage.canaries.needles().len(), stage.canaries.search());
    let mut findings = sinks::search(stage, &search).await;
    findings.retain(|finding| !stage.canaries.is_chance(finding));
    for sink in &SINKS {
        let here: Vec<_> = findings.iter().filter(|finding| Sink::of(finding).name == sink.name).collect();
        report.check(here.is_empty(), &format!("{}: nothing found", sink.name), &format!("{:#?}", here.first()));
    }
    let statuses = stage.statuses.lock().expect("no panic").clone();
    let missing: Vec<_> = STATUSES.into_iter().filter(|status| !statuses.contains(status)).collect();
    report.check(
        missing.is_empty(),
        &format!("all kinds of answers were given: {statuses:?}"),
        &format!("not {missing:?}"),
    );
    report.tell(&format!("{count} addresses and secrets searched for in {} MB", search.searched_bytes() / 1_000_000));
    report.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leak_planted_in_any_sink_is_found_there_in_every_guise() {
    let (stage, leak, mut report) = (stage().await, Leak::new(), Report::new());
    leak.plant(stage).await;
    let findings = sinks::search(stage, &Search::open(leak.needles()).expect("a search")).await;
    for sink in &SINKS {
        let here: Vec<_> = findings.iter().filter(|finding| Sink::of(finding).name == sink.name).collect();
        let forms = sink.forms().into_iter().filter(|form| here.iter().all(|found| found.form != *form));
        let needles = leak.needles().into_iter().filter(|needle| here.iter().all(|found| found.needle != *needle));
        let missed: Vec<_> =
            forms.map(|form| format!("{form:?}")).chain(needles.map(|needle| format!("{needle:?}"))).collect();
        report.check(missed.is_empty(), &format!("{}: a planted leak is found", sink.name), &format!("not {missed:?}"));
    }
    report.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_can_write_in_its_folder_alone_and_so_all_that_it_writes_is_searched() {
    let folder = testkit::Folder::open().expect("a folder");
    let touch = confine::wrap(Path::new("/usr/bin/touch"), folder.path()).expect("a program");
    let mut written = BTreeSet::new();
    for place in [".", "/tmp", "/var/tmp", "/dev/shm", "/root", "/var/log"] {
        let file = Path::new(place).join("ipseity-touched");
        let output = Command::new(&touch).arg(&file).current_dir(folder.path()).output().await.expect("a command");
        if output.status.success() {
            written.insert(place);
        }
    }
    let mut report = Report::new();
    report.check(written == BTreeSet::from(["."]), "nodes can write in their folders alone", &format!("{written:?}"));
    report.end();
}
