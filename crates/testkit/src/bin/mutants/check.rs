//! What finds a mutant: a fault run or a test.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Command;
use tokio::time::timeout;

use crate::programs::Programs;

const CHECK_TIMEOUT: Duration = Duration::from_secs(240);
const MUTANT_ENV: &str = "IPSEITY_MUTANT";
/// The model finds a mutant within these steps, or does not know the rule that it breaks.
const MODEL_STEPS: u32 = 60_000;
const MODEL_SEED: u32 = 1;
/// Checkers of the fault runs. Any other failure of a run, such as a node that does not start, proves nothing.
const CHECKERS: [&str; 6] = ["burst", "day limit", "revocation", "charges", "refusals", "counters"];
const MESSAGE_CHARS_MAX: usize = 150;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Check {
    /// A run of `faults`, short or long, of one kind and seed.
    Faults { kind: &'static str, seed: u64, is_short: bool },
    /// A test of a package, in `tests/it` or in `src`.
    Test { package: &'static str, is_unit: bool, name: &'static str },
    /// The model of the ledger.
    Model,
}

#[derive(PartialEq, Eq)]
pub(crate) enum CheckOutcome {
    Passed,
    /// A test or a checker failed, with this message.
    Found(String),
    /// The check failed in another way, and proves nothing.
    Broken(String),
}

impl Check {
    pub(crate) const fn is_test(&self) -> bool {
        !matches!(self, Self::Faults { .. })
    }

    /// Runs the check with or without a mutant.
    pub(crate) async fn run(&self, programs: &Programs, mutant: Option<&str>) -> Result<CheckOutcome> {
        let mut command = self.command(programs)?;
        command.env_remove(MUTANT_ENV).envs(mutant.map(|name| (MUTANT_ENV, name)));
        command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).kill_on_drop(true);
        let Ok(output) = timeout(CHECK_TIMEOUT, command.output()).await else {
            return Ok(CheckOutcome::Broken(format!("did not end within {CHECK_TIMEOUT:?}")));
        };
        let output = output.with_context(|| format!("failed to run {self}"))?;
        if output.status.success() {
            return Ok(CheckOutcome::Passed);
        }
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        let found = if self.is_test() { panic_message(&text) } else { violation(&text) };
        Ok(found.map_or_else(|| CheckOutcome::Broken(last_line(&text)), |found| CheckOutcome::Found(shorten(&found))))
    }

    fn command(&self, programs: &Programs) -> Result<Command> {
        Ok(match *self {
            Self::Faults { kind, seed, is_short } => {
                let mut command = Command::new(&programs.faults);
                command.args(["--only", kind, "--seed", &seed.to_string(), "--runs"]);
                // Sets the number of runs, which comes after it.
                command.args(is_short.then_some("--short")).args(["--seeds", "1", "--parallel", "1"]);
                command.env("IPSEITY_BIN", &programs.service);
                command
            }
            Self::Test { package, is_unit, name } => programs.test_command(package, is_unit, name)?,
            Self::Model => {
                let mut command =
                    programs.test_command("ipseity-ledger", false, "model::script_and_model_never_differ")?;
                command.env("IPSEITY_MODEL_STEPS", MODEL_STEPS.to_string());
                command.env("IPSEITY_MODEL_SEED", MODEL_SEED.to_string());
                command
            }
        })
    }
}

/// The first violation that a checker reported.
fn violation(output: &str) -> Option<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("FAIL  "));
    let messages = lines.filter_map(|line| {
        let (_, seed) = line.split_once(" seed ")?;
        let (_, message) = seed.split_once(' ')?;
        Some(message.trim_start())
    });
    let is_violation = |message: &&str| {
        CHECKERS.iter().any(|checker| message.strip_prefix(checker).is_some_and(|rest| rest.starts_with(':')))
    };
    messages.into_iter().find(is_violation).map(str::to_owned)
}

/// The message that a test panicked with. The last lines are how to get a backtrace.
fn panic_message(output: &str) -> Option<String> {
    let mut lines = output.lines().skip_while(|line| !line.contains("panicked at"));
    lines.next()?;
    let message: Vec<&str> = lines.take_while(|line| !line.starts_with("note: ")).map(str::trim).collect();
    Some(message.join(" "))
}

fn last_line(output: &str) -> String {
    shorten(output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output"))
}

fn shorten(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults { kind, seed, is_short } => {
                write!(formatter, "faults {kind}{}, seed {seed}", if *is_short { " --short" } else { "" })
            }
            Self::Test { package, name, .. } => write!(formatter, "{package} {name}"),
            Self::Model => write!(formatter, "model"),
        }
    }
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => formatter.write_str("passed"),
            Self::Found(message) => formatter.write_str(message),
            Self::Broken(message) => write!(formatter, "failed, but not by a check: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_checkers_and_panics_find_a_mutant() {
        let failed = |message: &str| format!("FAIL  redis-killed      seed 7     {message}\n\n0 passed, 1 failed\n");
        assert_eq!(violation(&failed("day limit: 61 admitted")).as_deref(), Some("day limit: 61 admitted"));
        assert_eq!(violation(&failed("the node did not become ready")), None);
        assert_eq!(violation("ok    redis-killed seed 7     charges: 1\n"), None);
        let panicked = "running 1 test\nthread 'a' panicked at b.rs:1:2:\nassertion failed\nnote: x\n";
        assert_eq!(panic_message(panicked).as_deref(), Some("assertion failed"));
        assert_eq!(panic_message("error: no such file\n"), None);
    }
}
