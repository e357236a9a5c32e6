//! `ipseity doctor`: looks at everything that a node leans on, and says of each in one sentence what is wrong and what to do.
//!
//! It changes nothing, and can be run beside a node that serves.

mod clocks;
mod finding;
mod machine;
mod postgres;
mod redis;
mod settings;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;

use self::finding::{DoctorFinding, Severity};
use crate::cli::output;
use crate::config::Config;

/// How the findings are shown.
#[derive(Args)]
pub(super) struct DoctorCommand {
    /// Print JSON, one finding a line: `about`, `weight` (ok, note or wrong) and `says`.
    #[arg(long)]
    json: bool,
}

impl DoctorCommand {
    pub(super) async fn run(&self, config: &Config) -> Result<()> {
        let (redis, postgres, ports) =
            tokio::join!(redis::check_redis(config), postgres::check_postgres(config), machine::check_ports(config));
        let clocks = clocks::check_clocks(&[redis.clocks, postgres.clocks].concat());
        let findings: Vec<DoctorFinding> = [
            settings::check_settings(config),
            redis.findings,
            postgres.findings,
            clocks,
            settings::check_certificates(config),
            settings::check_geo_databases(config),
            machine::check_open_files(config),
            ports,
            settings::check_proxies(config),
            settings::check_exposure(config),
        ]
        .into_iter()
        .flatten()
        .collect();
        findings.iter().try_for_each(|finding| self.print_finding(finding))?;
        let error_count = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        let noun = if error_count == 1 { "thing is" } else { "things are" };
        ensure!(error_count == 0, "{error_count} {noun} wrong; the lines that say so end with what to do");
        Ok(())
    }

    fn print_finding(
        &self,
        DoctorFinding { check: about, severity: weight, message: says }: &DoctorFinding,
    ) -> Result<()> {
        if self.json {
            return output::print_json(&json!({ "about": about, "weight": weight.name(), "says": says }));
        }
        output::print_line(&format!("{:<5}  {about:<13}  {says}", weight.name()))
    }
}

/// What was learnt of a store.
struct BackendReport {
    findings: Vec<DoctorFinding>,
    clocks: Vec<clocks::ClockOffset>,
}

/// Whole sentences begin with a capital letter and end with a full stop, whoever wrote the error that they are made of.
fn to_sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

/// An error and its causes, as one sentence; a cause that the error has told already is not told again.
fn error_sentence(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{separator}{cause}");
        }
    }
    to_sentence(&text)
}
