//! Runs commands and collects their output.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Exit code and output of a command.
#[derive(Debug, Clone)]
pub struct CommandOutput {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error as text.
    pub stderr: String,
}

impl CommandOutput {
    /// Whether the exit code is 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.stdout).with_context(|| format!("not JSON: {}{}", self.text(), self.stderr))
    }

    /// Standard output with one JSON value per line.
    pub fn json_lines(&self) -> Result<Vec<Value>> {
        let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"));
        self.text().lines().map(parse).collect()
    }

    /// Returns the output, or an error with the output if the command failed.
    pub fn ensure_success(self) -> Result<Self> {
        ensure!(self.is_success(), "exit code {:?}: {}{}", self.code, self.text(), self.stderr);
        Ok(self)
    }
}

/// Runs a command until it exits.
pub(crate) async fn run_command(command: &mut Command) -> Result<CommandOutput> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let output = timeout(COMMAND_TIMEOUT, command.kill_on_drop(true).output())
        .await
        .with_context(|| format!("{name} did not exit within {COMMAND_TIMEOUT:?}"))?
        .with_context(|| format!("failed to run {name}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(CommandOutput { code: output.status.code(), stdout: output.stdout, stderr })
}
