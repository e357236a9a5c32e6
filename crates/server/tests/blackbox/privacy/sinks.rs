//! Everything that a run leaves behind, each with a name: what is searched, and where a planted leak must be found.

use testkit::{Caller, Finding, Form, Search};

use super::stage::Stage;

const METRICS: &str = "metrics";
const MAILS: &str = "mails";
const VALUES: &str = "Redis: keys and values";
const SLOW_LOG: &str = "Redis: slow log";
const DUMP: &str = "PostgreSQL: dump";

/// A sink, what the place of a finding in it contains, and whether it can hold any bytes or text alone.
pub(crate) struct Sink {
    pub(crate) name: &'static str,
    place: &'static str,
    pub(crate) takes_bytes: bool,
}

const fn sink(name: &'static str, place: &'static str, takes_bytes: bool) -> Sink {
    Sink { name, place, takes_bytes }
}

/// In this order: the last takes what belongs to no other.
pub(crate) const SINKS: [Sink; 14] = [
    sink("nodes: log", "/node.log", true),
    sink("nodes: metrics", METRICS, false),
    sink(MAILS, MAILS, false),
    sink(VALUES, VALUES, true),
    sink(SLOW_LOG, SLOW_LOG, true),
    sink("Redis: MONITOR", "/monitor.log", false),
    sink("Redis: append-only file", "/appendonlydir/", true),
    sink("Redis: snapshot", "/dump.rdb", true),
    sink("Redis: log", "/redis.log", false),
    sink(DUMP, DUMP, false),
    sink("PostgreSQL: write-ahead log", "/pg_wal/", true),
    sink("PostgreSQL: tables", "/data/base/", true),
    sink("PostgreSQL: log", "/postgres.log", false),
    sink("any other file", "/", true),
];

impl Sink {
    /// The sink that a finding is in.
    pub(crate) fn of(finding: &Finding) -> &'static Self {
        SINKS.iter().find(|sink| finding.place.contains(sink.place)).expect("the last takes every file")
    }

    /// The guises in which a leak planted here must be seen.
    pub(crate) fn forms(&self) -> Vec<Form> {
        let text = [Form::Text, Form::Hex, Form::Decimal, Form::Base64];
        text.into_iter().chain(self.takes_bytes.then_some(Form::Binary)).collect()
    }
}

/// Searches all of them.
pub(crate) async fn search(stage: &Stage, search: &Search) -> Vec<Finding> {
    let (house, mut findings) = (stage.house(), Vec::new());
    for (name, bytes) in &stage.kept {
        findings.extend(search.bytes(name, bytes));
    }
    findings.extend(search.bytes(VALUES, &house.redis.dump_bytes().await.expect("what Redis holds")));
    findings.extend(search.bytes(SLOW_LOG, &house.redis.slow_log().await.expect("a slow log")));
    findings.extend(search.bytes(DUMP, &house.postgres.dump("ipseity").await.expect("a dump")));
    for node in stage.private() {
        // Some nodes are dead by now.
        if let Ok(reply) = Caller::new(node).get("/metrics", &[]).await {
            findings.extend(search.bytes(METRICS, &reply.body));
        }
    }
    for mail in stage.portal.mailbox.mails() {
        findings.extend(search.bytes(MAILS, format!("{mail:?}").as_bytes()));
    }
    // What is in memory alone goes to disk before the files are searched.
    house.postgres.psql("ipseity", "checkpoint").await.expect("a checkpoint");
    house.redis.call(&["SAVE"]).await.expect("a snapshot");
    for folder in stage.folders() {
        findings.extend(search.files(&folder).expect("files"));
    }
    findings
}
