//! `ipseity doctor`: looks at everything that a node leans on, and says of each in one sentence what is wrong and what to do.
//!
//! It changes nothing, and can be run beside a node that serves.

mod clocks;
mod counter;
mod durable;
mod finding;
mod machine;
mod settings;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;

use self::finding::{Finding, Weight};
use super::show;
use crate::config::Config;

/// How the findings are shown.
#[derive(Args)]
pub(super) struct Doctor {
    /// Print JSON, one finding a line: `about`, `weight` (ok, note or wrong) and `says`.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) async fn run(&self, config: &Config) -> Result<()> {
        let (counter, durable, ports) =
            tokio::join!(counter::examine(config), durable::examine(config), machine::ports(config));
        let clocks = clocks::judge(&[counter.clocks, durable.clocks].concat());
        let findings: Vec<Finding> = [
            settings::readable(config),
            counter.findings,
            durable.findings,
            clocks,
            settings::certificates(config),
            settings::geo(config),
            machine::files(config),
            ports,
            settings::proxies(config),
            settings::exposure(config),
        ]
        .into_iter()
        .flatten()
        .collect();
        findings.iter().try_for_each(|finding| self.show(finding))?;
        let wrong = findings.iter().filter(|finding| finding.weight == Weight::Wrong).count();
        let things = if wrong == 1 { "thing is" } else { "things are" };
        ensure!(wrong == 0, "{wrong} {things} wrong; the lines that say so end with what to do");
        Ok(())
    }

    fn show(&self, Finding { about, weight, says }: &Finding) -> Result<()> {
        if self.json {
            return show::json(&json!({ "about": about, "weight": weight.name(), "says": says }));
        }
        show::line(&format!("{:<5}  {about:<13}  {says}", weight.name()))
    }
}

/// What was learnt of a store.
struct Examined {
    findings: Vec<Finding>,
    clocks: Vec<clocks::Clock>,
}

/// Whole sentences begin with a capital letter and end with a full stop, whoever wrote the error that they are made of.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

/// An error and its causes, as one sentence; a cause that the error has told already is not told again.
fn told(error: &anyhow::Error) -> String {
    let mut all = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !all.contains(&cause) {
            let colon = if all.is_empty() { "" } else { ": " };
            all = format!("{all}{colon}{cause}");
        }
    }
    sentence(&all)
}
