//! Changes of keys through the command line, recorded with their start and end.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_testkit::IssuedKey;
use ipseity_testkit::deployment::node::Env;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::history::{ChangeOutcome, ChangeRecord, KeyAction};
use crate::load::LoadKey;
use crate::recorder::Recorder;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(40);
/// The warning of a change that Redis does not have yet.
const NOT_IN_EFFECT: &str = "not in effect yet";

/// Runs `ipseity key …`, through fault proxies.
#[derive(Clone)]
pub(crate) struct CommandLine {
    pub(crate) program: PathBuf,
    pub(crate) env: Env,
}

impl CommandLine {
    /// Changes a key and records it.
    pub(crate) async fn change(&self, recorder: &Recorder, key: &LoadKey, action: KeyAction) -> ChangeOutcome {
        let start = recorder.now();
        let result = self.run(key, action).await;
        let end = recorder.now();
        let outcome = *result.as_ref().unwrap_or(&ChangeOutcome::Failed);
        recorder.record_change(ChangeRecord { key: key.index, action, start, end, outcome });
        outcome
    }

    async fn run(&self, key: &LoadKey, action: KeyAction) -> Result<ChangeOutcome> {
        let arguments: &[&str] = match action {
            KeyAction::Deactivate => &["key", "deactivate", &key.id],
            KeyAction::Reactivate => &["key", "reactivate", &key.id],
            KeyAction::Resume => &["key", "resume", &key.id],
            KeyAction::Rotate(_) => &["key", "rotate", &key.id, "--overlap-s", "0", "--json"],
        };
        let mut command = Command::new(&self.program);
        command.args(arguments).envs(&self.env).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(COMMAND_TIMEOUT, command.output()).await.context("the command did not exit")??;
        if !output.status.success() {
            return Ok(ChangeOutcome::Failed);
        }
        if let KeyAction::Rotate(_) = action {
            let issued: IssuedKey = serde_json::from_slice(&output.stdout)?;
            key.add_secret(issued.bearer());
        }
        let is_saved_only = String::from_utf8_lossy(&output.stderr).contains(NOT_IN_EFFECT);
        Ok(if is_saved_only { ChangeOutcome::Saved } else { ChangeOutcome::InEffect })
    }
}

/// A task that changes keys during a run.
pub(crate) struct KeyChanges {
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// The keys that are changed.
pub(crate) struct ChangedKeys {
    /// Deactivated and reactivated in turn.
    pub(crate) switched: LoadKey,
    pub(crate) rotated: LoadKey,
    /// Resumed now and then, if it exceeds its burst limit.
    pub(crate) resumed: Option<LoadKey>,
}

impl KeyChanges {
    pub(crate) fn start(command_line: CommandLine, recorder: &Recorder, keys: ChangedKeys, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (recorder, is_stopped) = (recorder.clone(), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed ^ 0xC4A6);
            let mut is_active = true;
            // A rotation first, so that each run has a secret that must not be accepted.
            let mut first = Some(0);
            while !is_stopped.load(Ordering::Acquire) {
                // Some revocations last longer than a notification takes. Otherwise no checker could see that one failed.
                let is_long = !is_active && rng.u8(..3) == 0;
                sleep(Duration::from_millis(rng.u64(if is_long { 800..1_200 } else { 50..400 }))).await;
                match (first.take().unwrap_or_else(|| rng.u8(..6)), &keys.resumed) {
                    (0, _) => {
                        let action = KeyAction::Rotate(keys.rotated.secrets());
                        command_line.change(&recorder, &keys.rotated, action).await;
                    }
                    (1, Some(resumed)) => {
                        command_line.change(&recorder, resumed, KeyAction::Resume).await;
                    }
                    _ => {
                        let action = if is_active { KeyAction::Deactivate } else { KeyAction::Reactivate };
                        if command_line.change(&recorder, &keys.switched, action).await != ChangeOutcome::Failed {
                            is_active = !is_active;
                        }
                    }
                }
            }
        });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        self.task.await.context("the task of key changes panicked")
    }
}
