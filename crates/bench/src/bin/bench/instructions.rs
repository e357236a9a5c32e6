//! Counts instructions per request with callgrind. The figure is the same on a busy and on an idle machine, so it
//! decides close cases.
//!
//! It does not include the kernel or cache misses; CPU times do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use ipseity_testkit::TestDir;
use ipseity_testkit::deployment::node::Env;
use tokio::process::Command;
use tokio::time::sleep;

use crate::compare::{CONNECTIONS, geo_databases};
use crate::comparison_server::BenchPrograms;
use crate::fixture::BenchFixture;
use crate::measure::USAGE_FLUSH_WAIT;
use crate::progress::progress;
use crate::report::print_targets;
use crate::subjects::{MALFORMED_KEY, PAGE, PAUSED_KEY_FLOODED, RESTRICTED};
use crate::targets::{PerformanceTarget, TargetBound};

const KEYS: usize = 1_000;
const WARM_S: u64 = 3;
const SECONDS: u64 = 8;
/// What a lookup with restrictions may cost.
const RESTRICTED_TO_UNRESTRICTED: f64 = 1.08;

pub(crate) async fn run_instructions() -> Result<ExitCode> {
    let counts = count_instructions().await?;
    print_counts(&counts);
    let bound = TargetBound::AtMost(RESTRICTED_TO_UNRESTRICTED);
    let target = PerformanceTarget::new("restricted key : key", [counts[RESTRICTED], counts[PAGE]], bound);
    print_targets(std::slice::from_ref(&target));
    Ok(ExitCode::from(u8::from(!target.is_met)))
}

#[expect(clippy::print_stdout, reason = "a report is printed")]
fn print_counts(counts: &BTreeMap<&'static str, f64>) {
    for (name, instructions) in counts {
        println!("{name:34} {instructions:8.0} instructions");
    }
}

/// Counts instructions of the subjects on plain HTTP/1.1.
pub(crate) async fn count_instructions() -> Result<BTreeMap<&'static str, f64>> {
    let dir = TestDir::create()?;
    // callgrind makes everything about fifty times slower.
    let env = Env::from([("IPSEITY__LEDGER__TIMEOUT_MS".to_owned(), "20000".to_owned())]);
    let programs = under_callgrind(&BenchPrograms::find()?, dir.path())?;
    let fixture = BenchFixture::open(KEYS, CONNECTIONS, geo_databases()?, env, &programs).await?;
    fixture.warm_up(&fixture.pools.full).await?;
    fixture.warm_up(&fixture.pools.page).await?;
    fixture.warm_up(&fixture.pools.restricted).await?;
    let others = [
        fixture.http1_subject(PAGE, &fixture.pools.page, "success"),
        fixture.http1_subject(RESTRICTED, &fixture.pools.restricted, "success"),
        fixture.http1_subject(MALFORMED_KEY, &fixture.pools.malformed_key, "invalid_api_key"),
        fixture.http1_subject(PAUSED_KEY_FLOODED, &fixture.pools.one_paused_key, "paused"),
    ];
    let mut counts = BTreeMap::new();
    for subject in fixture.basic_subjects().iter().chain(&others) {
        progress(&format!("counting instructions: {}", subject.name));
        let pid = *subject.processes.servers.first().context("the subject has no server")?;
        subject.load.run(WARM_S, fixture.dir.path()).await?;
        sleep(USAGE_FLUSH_WAIT).await;
        dump_counts(pid, dir.path()).await?;
        let result = subject.load.run(SECONDS, fixture.dir.path()).await?;
        sleep(USAGE_FLUSH_WAIT).await;
        let instructions = dump_counts(pid, dir.path()).await?;
        let is_refusal = subject.processes.expected_outcome.is_some_and(|(_, outcome)| outcome != "success");
        let is_expected = result.refused == if is_refusal { result.requests } else { 0 };
        ensure!(result.requests > 0 && result.failed == 0 && is_expected, "{}: unexpected responses", subject.name);
        counts.insert(subject.name, instructions as f64 / result.requests as f64);
    }
    Ok(counts)
}

/// Wraps the programs in scripts that run them under callgrind.
pub(crate) fn under_callgrind(programs: &BenchPrograms, dir: &Path) -> Result<BenchPrograms> {
    let trace = |name: &str, program: &Path| -> Result<PathBuf> {
        let script = dir.join(name);
        let counts = dir.join("counts.%p");
        let (counts, program) = (counts.display(), program.display());
        let line = format!("exec valgrind --quiet --tool=callgrind --callgrind-out-file='{counts}' '{program}' \"$@\"");
        fs::write(&script, format!("#!/bin/sh\n{line}\n"))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(script)
    };
    Ok(BenchPrograms {
        service: trace("service", &programs.service)?,
        reference_server: trace("subject", &programs.reference_server)?,
    })
}

/// Makes callgrind write its counts since the last dump and reset them.
pub(crate) async fn dump_counts(pid: u32, dir: &Path) -> Result<u64> {
    let control = Command::new("callgrind_control").arg("--dump").arg(pid.to_string()).output().await;
    let output = control.context("failed to run callgrind_control; install valgrind")?;
    ensure!(output.status.success(), "callgrind_control failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut total = None;
    for entry in fs::read_dir(dir)? {
        let file = entry?.path();
        if file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&format!("counts.{pid}."))) {
            let text = fs::read_to_string(&file)?;
            total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
            fs::remove_file(file)?;
        }
    }
    total.context("callgrind wrote no counts")
}
