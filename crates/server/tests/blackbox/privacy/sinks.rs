//! Every place to which a run writes data: what is searched, and where a planted leak must be found.

use ipseity_testkit::{NeedleEncoding, PrivacyFinding, PrivacySearch, TestClient};

use super::fixture::PrivacyFixture;

const METRICS: &str = "metrics";
const EMAILS: &str = "mails";
const VALUES: &str = "Redis: keys and values";
const SLOW_LOG: &str = "Redis: slow log";
const DUMP: &str = "PostgreSQL: dump";

/// A sink, the part of a finding's source that identifies it, and whether it can contain any bytes or only text.
pub(crate) struct DataSink {
    pub(crate) name: &'static str,
    path_part: &'static str,
    pub(crate) accepts_binary: bool,
}

const fn data_sink(name: &'static str, path_part: &'static str, accepts_binary: bool) -> DataSink {
    DataSink { name, path_part, accepts_binary }
}

/// The order matters: the last sink matches everything else.
pub(crate) const SINKS: [DataSink; 14] = [
    data_sink("nodes: log", "/node.log", true),
    data_sink("nodes: metrics", METRICS, false),
    data_sink(EMAILS, EMAILS, false),
    data_sink(VALUES, VALUES, true),
    data_sink(SLOW_LOG, SLOW_LOG, true),
    data_sink("Redis: MONITOR", "/monitor.log", false),
    data_sink("Redis: append-only file", "/appendonlydir/", true),
    data_sink("Redis: snapshot", "/dump.rdb", true),
    data_sink("Redis: log", "/redis.log", false),
    data_sink(DUMP, DUMP, false),
    data_sink("PostgreSQL: write-ahead log", "/pg_wal/", true),
    data_sink("PostgreSQL: tables", "/data/base/", true),
    data_sink("PostgreSQL: log", "/postgres.log", false),
    data_sink("any other file", "/", true),
];

impl DataSink {
    /// The sink of a finding.
    pub(crate) fn containing(finding: &PrivacyFinding) -> &'static Self {
        SINKS.iter().find(|sink| finding.source.contains(sink.path_part)).expect("last sink matches every file")
    }

    /// The encodings in which a leak planted here must be found.
    pub(crate) fn expected_encodings(&self) -> Vec<NeedleEncoding> {
        let text = [NeedleEncoding::Text, NeedleEncoding::Hex, NeedleEncoding::Decimal, NeedleEncoding::Base64];
        text.into_iter().chain(self.accepts_binary.then_some(NeedleEncoding::Binary)).collect()
    }
}

/// Searches all sinks.
pub(crate) async fn search_sinks(fixture: &PrivacyFixture, search: &PrivacySearch) -> Vec<PrivacyFinding> {
    let (deployment, mut findings) = (fixture.deployment(), Vec::new());
    for (name, bytes) in &fixture.saved_dumps {
        findings.extend(search.search_bytes(name, bytes));
    }
    findings.extend(search.search_bytes(VALUES, &deployment.redis.dump_all().await.expect("read the data of Redis")));
    findings.extend(search.search_bytes(SLOW_LOG, &deployment.redis.slow_log().await.expect("read the slow log")));
    findings.extend(search.search_bytes(DUMP, &deployment.postgres.dump("ipseity").await.expect("dump the data")));
    for node in fixture.ops_addresses() {
        // Some nodes have been stopped.
        if let Ok(reply) = TestClient::new(node).get("/metrics", &[]).await {
            findings.extend(search.search_bytes(METRICS, &reply.body));
        }
    }
    for message in fixture.portal.smtp.emails() {
        findings.extend(search.search_bytes(EMAILS, format!("{message:?}").as_bytes()));
    }
    // Flushes memory to disk before the files are searched.
    deployment.postgres.psql("ipseity", "checkpoint").await.expect("checkpoint succeeds");
    deployment.redis.run_command(&["SAVE"]).await.expect("save a snapshot");
    for dir in fixture.dirs() {
        findings.extend(search.search_files(&dir).expect("search the files"));
    }
    findings
}
