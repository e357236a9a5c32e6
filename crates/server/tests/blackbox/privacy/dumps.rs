//! A node that crashes leaves no image of its memory, also where it could.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use domain::Scope;
use testkit::{Search, confine};
use tokio::process::Command;

use super::plants::Leak;
use super::report::Report;
use super::routes::LOOKUP;
use super::stage::{another, stage};
use crate::shared::fresh_key;

const LIMIT: &str = "Max core file size";
const SIGABRT: i32 = 6;

/// What a process may write of its memory, as the kernel says.
fn core_limit(pid: u32) -> Vec<String> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("a process");
    let line = limits.lines().find_map(|line| line.strip_prefix(LIMIT)).expect("a limit");
    line.split_whitespace().take(2).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_crashes_leaves_no_core_dump() {
    let (stage, mut report) = (stage().await, Report::new());
    let mut node = stage.house().start_node(&another(&[])).await.expect("a node");
    let limit = core_limit(node.pid());
    report.check(limit == ["0", "0"], "a node's limit of core files is 0", &format!("{limit:?}"));
    let key = stage.canaries.key(&fresh_key(stage.house(), Scope::Full).await.key);
    let asked = node.caller().get(&format!("{LOOKUP}?key={key}"), &[]).await.expect("an answer");
    assert_eq!(asked.status, 200);
    let status = node.abort().await.expect("an end");
    assert_eq!(status.signal(), Some(SIGABRT));
    report.check(!status.core_dumped(), "a node that crashes dumps no core", &format!("{status}"));
    let left: Vec<_> =
        fs::read_dir(node.folder()).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    report.check(left.iter().all(|name| !is_core(name)), "and leaves no file of one", &format!("{left:?}"));
    report.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_planted_on_purpose_is_found_where_a_node_runs() {
    let (leak, mut report) = (Leak::new(), Report::new());
    let folder = testkit::Folder::open().expect("a folder");
    let sleep = confine::wrap("/usr/bin/sleep".as_ref(), folder.path()).expect("a program");
    let mut command = Command::new(sleep);
    command.arg("60").env("LEAK", leak.text()).current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true);
    let mut process = command.spawn().expect("a process");
    let pid = process.id().expect("a process that runs");
    let is_sleeping = async || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    testkit::eventually("it runs", std::time::Duration::from_secs(10), is_sleeping).await.expect("a process");
    let limit = core_limit(pid);
    report.check(limit == ["unlimited", "unlimited"], "another program's is not", &format!("{limit:?}"));
    let crash = format!("kill -ABRT {pid}");
    assert!(Command::new("sh").args(["-c", &crash]).status().await.expect("a command").success());
    let status = process.wait().await.expect("an end");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern");
    if pattern.starts_with(['|', '/']) {
        report.tell(&format!("this machine takes core dumps away ({}): none to be found", pattern.trim()));
    } else {
        report.check(status.core_dumped(), "another program that crashes dumps one", &format!("{status}"));
        let found = Search::open(leak.needles()).expect("a search").files(folder.path()).expect("files");
        report.check(!found.is_empty(), "core dump: a planted leak is found", "nothing");
    }
    report.end();
}

fn is_core(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with("core")
}
