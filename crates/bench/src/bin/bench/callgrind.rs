//! Instructions for each request, counted by callgrind: a figure that is the same on a busy machine and on a quiet one, and so the tie-breaker.
//!
//! It says nothing of the kernel and nothing of memory that is far away; both are in the CPU times.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use testkit::Folder;
use testkit::node::Env;
use tokio::process::Command;
use tokio::time::sleep;

use crate::compare::{CONNECTIONS, databases};
use crate::measure::BOOKS;
use crate::progress::progress;
use crate::server::Programs;
use crate::stage::Stage;
use crate::subjects::{FLOODED, MALFORMED};

const KEYS: usize = 1_000;
const WARM_S: u64 = 3;
const SECONDS: u64 = 8;

pub(crate) async fn run() -> Result<ExitCode> {
    print(&count().await?);
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "a report is printed")]
fn print(counts: &BTreeMap<&'static str, f64>) {
    for (name, instructions) in counts {
        println!("{name:32} {instructions:8.0} instructions");
    }
}

/// Counts for those who are compared over clear HTTP/1.1.
pub(crate) async fn count() -> Result<BTreeMap<&'static str, f64>> {
    let folder = Folder::open()?;
    // Under callgrind everything takes some fifty times as long.
    let env = Env::from([("IPSEITY__LEDGER__TIMEOUT_MS".to_owned(), "20000".to_owned())]);
    let programs = traced(&Programs::find()?, folder.path())?;
    let stage = Stage::open(KEYS, CONNECTIONS, databases()?, env, &programs).await?;
    stage.meet(&stage.crowds.full).await?;
    let refusals = [
        stage.clear(MALFORMED, &stage.crowds.malformed, "invalid_api_key"),
        stage.clear(FLOODED, &stage.crowds.flooded, "paused"),
    ];
    let mut counts = BTreeMap::new();
    for subject in stage.basic().iter().chain(&refusals) {
        progress(&format!("counting instructions: {}", subject.name));
        let pid = *subject.accounts.servers.first().context("a subject without a server")?;
        subject.load.run(WARM_S, stage.folder.path()).await?;
        sleep(BOOKS).await;
        dump(pid, folder.path()).await?;
        let ran = subject.load.run(SECONDS, stage.folder.path()).await?;
        sleep(BOOKS).await;
        let instructions = dump(pid, folder.path()).await?;
        let is_refusal = subject.accounts.outcome.is_some_and(|(_, outcome)| outcome != "success");
        let is_expected = ran.refused == if is_refusal { ran.requests } else { 0 };
        ensure!(
            ran.requests > 0 && ran.broken == 0 && is_expected,
            "{}: not all is answered as expected",
            subject.name
        );
        counts.insert(subject.name, instructions as f64 / ran.requests as f64);
    }
    Ok(counts)
}

/// The same programs under callgrind, each by a script that stands for it.
fn traced(programs: &Programs, folder: &Path) -> Result<Programs> {
    let trace = |name: &str, program: &Path| -> Result<PathBuf> {
        let script = folder.join(name);
        let counts = folder.join("counts.%p");
        let (counts, program) = (counts.display(), program.display());
        let line = format!("exec valgrind --quiet --tool=callgrind --callgrind-out-file='{counts}' '{program}' \"$@\"");
        fs::write(&script, format!("#!/bin/sh\n{line}\n"))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(script)
    };
    Ok(Programs { service: trace("service", &programs.service)?, subject: trace("subject", &programs.subject)? })
}

/// Has a process write down what it has counted since the last time, and begin again.
async fn dump(pid: u32, folder: &Path) -> Result<u64> {
    let control = Command::new("callgrind_control").arg("--dump").arg(pid.to_string()).output().await;
    let said = control.context("cannot run callgrind_control, of the package valgrind")?;
    ensure!(said.status.success(), "callgrind_control failed: {}", String::from_utf8_lossy(&said.stderr));
    let mut total = None;
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("counts.{pid}."))) {
            let text = fs::read_to_string(&file)?;
            total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
            fs::remove_file(file)?;
        }
    }
    total.context("callgrind wrote no counts")
}
