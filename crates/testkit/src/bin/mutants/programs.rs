//! The programs that checks run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use ipseity_testkit::deployment::node;
use serde::Deserialize;
use tokio::process::Command;

/// As in the justfile, so that nothing is compiled twice.
const BUILD_FLAGS: [&str; 3] = ["--workspace", "--features", "ipseity-server/failpoints"];

pub(crate) struct Programs {
    pub(crate) faults: PathBuf,
    pub(crate) service: PathBuf,
    /// Test programs by package, and whether they have the unit tests.
    tests: HashMap<(String, bool), TestProgram>,
}

struct TestProgram {
    executable: PathBuf,
    /// Tests run in the folder of their package, as with cargo.
    folder: PathBuf,
}

/// A line of cargo's output.
#[derive(Deserialize)]
struct CargoMessage {
    manifest_path: Option<PathBuf>,
    target: Option<CargoTarget>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct CargoTarget {
    name: String,
    kind: Vec<String>,
}

impl Programs {
    pub(crate) async fn find(needs_tests: bool) -> Result<Self> {
        Ok(Self {
            faults: node::find_test_binary("faults")?,
            service: node::find_service_binary()?,
            tests: if needs_tests { build_tests().await? } else { HashMap::new() },
        })
    }

    /// Runs one test.
    pub(crate) fn test_command(&self, package: &str, is_unit: bool, name: &str) -> Result<Command> {
        let program = self.tests.get(&(package.to_owned(), is_unit));
        let program = program.with_context(|| format!("{package} has no such tests"))?;
        let mut command = Command::new(&program.executable);
        command.args(["--exact", name, "--nocapture"]).current_dir(&program.folder);
        Ok(command)
    }
}

/// Builds all tests and lists their programs.
async fn build_tests() -> Result<HashMap<(String, bool), TestProgram>> {
    let mut command = Command::new("cargo");
    command.arg("test").args(BUILD_FLAGS).args(["--no-run", "--message-format", "json"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().await.context("failed to run cargo")?;
    ensure!(output.status.success(), "failed to build the tests");
    let messages = output.stdout.split(|byte| *byte == b'\n');
    Ok(messages.filter_map(|line| test_program(serde_json::from_slice(line).ok()?)).collect())
}

fn test_program(message: CargoMessage) -> Option<((String, bool), TestProgram)> {
    let (target, executable) = (message.target?, message.executable?);
    let folder = message.manifest_path?.parent()?.to_owned();
    let is_unit = target.kind.iter().any(|kind| kind == "lib");
    (is_unit || target.name == "it").then_some(())?;
    Some(((package_name(&folder)?, is_unit), TestProgram { executable, folder }))
}

/// The package in `crates/ledger` is `ipseity-ledger`.
fn package_name(folder: &Path) -> Option<String> {
    Some(format!("ipseity-{}", folder.file_name()?.to_str()?))
}
