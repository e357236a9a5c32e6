//! A crashing node leaves no core dump, even where it could.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use ipseity_domain::Scope;
use ipseity_testkit::PrivacySearch;
use ipseity_testkit::deployment::sandbox;
use tokio::process::Command;

use super::fixture::{extra_node_env, shared_fixture};
use super::planted_leaks::PlantedLeak;
use super::report::PrivacyReport;
use super::routes::LOOKUP_PATH;
use crate::fixture::fresh_key;

const CORE_LIMIT_NAME: &str = "Max core file size";
const SIGABRT: i32 = 6;

/// The core dump limit of a process according to the kernel.
fn core_limit(pid: u32) -> Vec<String> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("read the limits");
    let line = limits.lines().find_map(|line| line.strip_prefix(CORE_LIMIT_NAME)).expect("limit exists");
    line.split_whitespace().take(2).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn crashed_node_leaves_no_core_dump() {
    let (fixture, mut report) = (shared_fixture().await, PrivacyReport::new());
    let mut node = fixture.deployment().start_node(&extra_node_env(&[])).await.expect("node starts");
    let limit = core_limit(node.pid());
    report.check(limit == ["0", "0"], "a node's core file limit is 0", &format!("{limit:?}"));
    let key = fixture.canaries.register_key(&fresh_key(fixture.deployment(), Scope::Full).await.key);
    let response = node.client().get(&format!("{LOOKUP_PATH}?key={key}"), &[]).await.expect("response arrives");
    assert_eq!(response.status, 200);
    let status = node.abort().await.expect("process exits");
    assert_eq!(status.signal(), Some(SIGABRT));
    report.check(!status.core_dumped(), "a crashing node dumps no core", &format!("{status}"));
    let left: Vec<_> =
        fs::read_dir(node.dir()).expect("list the directory").flatten().map(|entry| entry.file_name()).collect();
    report.check(left.iter().all(|name| !is_core(name)), "a crashing node leaves no core file", &format!("{left:?}"));
    report.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_core_dump_is_found() {
    let (leak, mut report) = (PlantedLeak::new(), PrivacyReport::new());
    let dir = ipseity_testkit::TestDir::create().expect("create a directory");
    let sleep = sandbox::write_sandboxed_wrapper("/usr/bin/sleep".as_ref(), dir.path()).expect("write the wrapper");
    let mut command = Command::new(sleep);
    command.arg("60").env("LEAK", leak.joined_text()).current_dir(dir.path()).stdin(Stdio::null()).kill_on_drop(true);
    let mut process = command.spawn().expect("process starts");
    let pid = process.id().expect("process runs");
    let is_sleeping = async || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    ipseity_testkit::eventually("another program runs", std::time::Duration::from_secs(10), is_sleeping)
        .await
        .expect("process starts");
    let limit = core_limit(pid);
    report.check(limit == ["unlimited", "unlimited"], "another program's limit is not 0", &format!("{limit:?}"));
    let crash = format!("kill -ABRT {pid}");
    assert!(Command::new("sh").args(["-c", &crash]).status().await.expect("command runs").success());
    let status = process.wait().await.expect("process exits");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("read the pattern");
    if pattern.starts_with(['|', '/']) {
        report.note(&format!("this machine redirects core dumps ({}), so none can be found", pattern.trim()));
    } else {
        report.check(status.core_dumped(), "another crashing program dumps a core", &format!("{status}"));
        let found = PrivacySearch::new(leak.needles())
            .expect("create a search")
            .search_files(dir.path())
            .expect("search the files");
        report.check(!found.is_empty(), "core dump: a planted leak is found", "nothing");
    }
    report.finish();
}

fn is_core(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with("core")
}
